// The shape of mimalloc's data: segments, the slices that they consist of, and pages, which are
// runs of slices with blocks of one size.
#pragma once

#include "heaps/heap.hpp"

namespace reachscan::heaps::mimalloc {

constexpr uint64_t kSegmentAlignment = 32 << 20;
constexpr uint64_t kSlice = 64 << 10;
constexpr uint64_t kMaxEntries = kSegmentAlignment / kSlice;

// Offsets, by release, of the required fields of a segment (mi_segment_t), of a page (mi_page_t),
// which also describes a run of slices without blocks, and of a heap (mi_heap_t).
struct Layout {
  uint32_t cookie, segment_slices, info_slices, kind, entries, slices;
  uint32_t page_bytes, local_free, used, block_size, thread_free, heap;
  uint32_t heap_cookie, heap_delayed;
  bool notes_start;  // whether a page stores the start of its blocks; then sizes have 64 bits
};

constexpr Layout kFrom20 = {216, 224, 232, 240, 248,  264,  80,   32,
                            24,  28,  40,  48,  2864, 2840, false};
constexpr Layout kFrom214 = {216, 224, 232, 240, 248, 264, 96, 24, 32, 40, 56, 64, 32, 8, true};
constexpr Layout kFrom219 = {224, 248, 256, 264, 272, 288, 96, 24, 32, 40, 56, 64, 32, 8, true};

// The same in all releases.
constexpr uint64_t kUsedBeforeCookie = 8;
constexpr uint64_t kSliceCountField = 0, kSliceOffsetField = 4;
constexpr uint64_t kCapacityField = 10, kReservedField = 12, kFreeField = 16, kStartField = 48;

// The offset of the first block in a page that does not store it. Since 2.1, that depends on the
// size.
enum class Start : uint8_t { kAligned, kBySize };

constexpr uint64_t offset_of_first(Start rule, uint64_t size) {
  if (rule == Start::kAligned) return size <= 1024 ? 384 : 0;
  return size <= 64 ? 3 * size : size <= 512 ? size : 0;
}

// One copy of the allocator in the process.
struct Instance {
  uint64_t key;  // the signature of segments
  uint64_t main_heap;
  uint32_t file;
  Layout layout;
};

struct Segment {
  uint64_t start;
  uint64_t slices;
  uint64_t info_slices;
  uint64_t entries;
  uint64_t key;
  uint64_t used;  // number of pages; 0: released, and others may follow in its memory

  uint64_t end() const { return used == 0 ? start + kSegmentAlignment : start + slices * kSlice; }
};

// Reads the segment that starts at `at`; has no slices if there is none.
inline Segment segment_at(const Space& space, uint64_t at, const Layout& layout) {
  constexpr uint64_t kMaxInfoSlices = 64, kMaxSlices = 1ull << 31;
  if (!space.readable(at, layout.slices + kMaxInfoSlices * layout.page_bytes)) return {};
  Segment segment{at,
                  word(at + layout.segment_slices),
                  word(at + layout.info_slices),
                  word(at + layout.entries),
                  word(at + layout.cookie) ^ at,
                  word(at + layout.cookie - kUsedBeforeCookie)};
  uint64_t first = at + layout.slices;
  bool possible = segment.info_slices > 0 && segment.info_slices < kMaxInfoSlices &&
                  segment.entries > segment.info_slices && segment.entries <= kMaxEntries &&
                  segment.slices >= segment.entries && segment.slices < kMaxSlices &&
                  load<uint32_t>(at + layout.kind) <= 1 && segment.key != 0;
  bool begins = load<uint32_t>(first + kSliceCountField) == segment.info_slices &&
                load<uint32_t>(first + kSliceOffsetField) == 0;
  // Releases differ in the size of a page's structure.
  uint64_t second = first + segment.info_slices % kMaxInfoSlices * layout.page_bytes;
  bool can_continue = load<uint32_t>(second + kSliceCountField) != 0 &&
                      load<uint32_t>(second + kSliceOffsetField) == 0;
  return possible && begins && can_continue ? segment : Segment{};
}

// A page in use: its slices hold blocks of one size, some of which were never handed out.
struct Page {
  uint64_t at;  // of the structure
  uint64_t start, end;
  uint64_t size;
  uint64_t capacity, reserved, used;

  uint64_t room() const { return end - start; }
};

inline Page read_page(uint64_t at, Range span, const Layout& layout) {
  constexpr uint64_t kHuge = 1ull << 31;  // or larger
  Page page{at,
            span.start,
            span.end,
            0,
            load<uint16_t>(at + kCapacityField),
            load<uint16_t>(at + kReservedField),
            load<uint16_t>(at + layout.used)};
  page.size =
      layout.notes_start ? word(at + layout.block_size) : load<uint32_t>(at + layout.block_size);
  if (!layout.notes_start && page.size == kHuge) page.size = page.room();
  return page;
}

}  // namespace reachscan::heaps::mimalloc
