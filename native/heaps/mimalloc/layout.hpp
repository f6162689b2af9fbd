// The shape of mimalloc's data: segments, and pages in them with blocks of one size. In release 1,
// a segment is divided into pages of one size; in release 2 into slices, and pages are runs of
// slices.
#pragma once

#include "heaps/heap.hpp"

namespace reachscan::heaps::mimalloc {

constexpr uint64_t kSlice = 64 << 10, kMiB = 1 << 20;
constexpr uint64_t kLeastAlignment = 4 * kMiB;  // of segments

// Where the first block of a page is: the page stores it; at the first address that is a multiple
// of the size; or so far behind the start of the page, unless the blocks are large. Since 2.1, that
// distance depends on the size.
enum class Start : uint8_t { kNoted, kMultiple, kAtOnce, kBehind128, kBehind384, kBySize };

// What releases differ in, besides offsets.
struct Rules {
  uint64_t alignment;  // of segments
  Start start;
  // A page whose block is at least as large does not store the size: it has room for that alone.
  uint64_t huge = 0;  // unless it stores the start
};

constexpr Rules kRules20{8 * kMiB, Start::kAtOnce, 128 * kMiB};
// Since 2.0.6, sizes below 2 GiB are stored. They are those of the pages, too.
constexpr Rules kRules203{64 * kMiB, Start::kBehind128, 1024 * kMiB};
constexpr Rules kRules209{32 * kMiB, Start::kBehind384, 2048 * kMiB};
constexpr Rules kRules214{32 * kMiB, Start::kNoted};
constexpr Rules kRules17{4 * kMiB, Start::kMultiple, 64 * kMiB};
constexpr Rules kRules184{4 * kMiB, Start::kNoted};

// By release: offsets of the required fields of a segment (mi_segment_t), of a page (mi_page_t),
// which also describes a run of slices without blocks, and of a heap (mi_heap_t).
struct Layout {
  // In slices; in release 1, size and info are in bytes, and slices are pages.
  uint32_t cookie, segment_size, info_size, kind, entries, slices;
  uint32_t page_bytes, local_free, used, block_size, thread_free, heap;
  uint32_t heap_cookie, heap_delayed;
  Rules rules;
  uint32_t segment_used;
  uint32_t page_shift = 0;  // only in release 1

  bool notes_start() const { return rules.start == Start::kNoted; }
  bool is_release_1() const { return page_shift != 0; }
  uint64_t alignment() const { return rules.alignment; }
};

constexpr Layout kFrom20 = {80, 88, 96, 104, 120,  128,  80,       32,
                            24, 28, 40, 48,  2856, 2840, kRules20, 72};
// Until 2.0.6, a heap's cookie is a word earlier.
constexpr Layout kFrom203 = {320, 328, 336, 344, 360,  368,  80,        32,
                             24,  28,  40,  48,  2864, 2840, kRules203, 312};
constexpr Layout kFrom209 = {216, 224, 232, 240, 248,  264,  80,        32,
                             24,  28,  40,  48,  2864, 2840, kRules209, 208};
constexpr Layout kFrom214 = {216, 224, 232, 240, 248, 264, 96,        24,
                             32,  40,  56,  64,  32,  8,   kRules214, 208};
constexpr Layout kFrom219 = {224, 248, 256, 264, 272, 288, 96,        24,
                             32,  40,  56,  64,  32,  8,   kRules214, 216};
// A page's structure lacks what is at its start in release 2, and is as if it began 8 bytes before.
constexpr uint64_t kLacking = 8;
constexpr Layout kFrom17 = {88, 72, 80, 112,  64,   120,      64, 32, 24,
                            28, 40, 48, 2856, 2840, kRules17, 56, 96};
constexpr Layout kFrom179 = {104, 88, 96, 128,  80,   136,      64, 32, 24,
                             28,  40, 48, 2856, 2840, kRules17, 72, 112};
constexpr Layout kFrom181 = {104, 32, 96, 128,  88,   136,      64, 32, 24,
                             28,  40, 48, 2864, 2840, kRules17, 80, 112};
constexpr Layout kFrom184 = {104, 32, 96, 128, 88, 136,       80, 24, 32,
                             40,  56, 64, 32,  8,  kRules184, 80, 120};
constexpr Layout kFrom189 = {112, 32, 104, 152, 96, 160,       80, 24, 32,
                             40,  56, 64,  32,  8,  kRules184, 88, 144};
constexpr Layout kLayouts[] = {kFrom20, kFrom203, kFrom209, kFrom214, kFrom219,
                               kFrom17, kFrom179, kFrom181, kFrom184, kFrom189};

// The same in all releases.
constexpr uint64_t kInUseField = 1;  // of a page of release 1
constexpr uint64_t kSliceCountField = 0, kSliceOffsetField = 4;
constexpr uint64_t kCapacityField = 10, kReservedField = 12, kFreeField = 16, kStartField = 48;

// The offset of the first block in a page that does not store it.
constexpr uint64_t offset_of_first(Start rule, uint64_t size, uint64_t start = 0) {
  constexpr uint64_t kLargestBehind = 1024;
  constexpr uint64_t kLargestSharing = 128 << 10;  // pages of larger blocks are whole segments
  switch (rule) {
    case Start::kMultiple:
      return start % kSlice == 0 || size > kLargestSharing ? 0 : (size - start % size) % size;
    case Start::kBehind128:
      return size <= kLargestBehind ? 128 : 0;
    case Start::kBehind384:
      return size <= kLargestBehind ? 384 : 0;
    case Start::kBySize:
      return size <= 64 ? 3 * size : size <= 512 ? size : 0;
    default:
      return 0;
  }
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
  uint64_t bytes;  // 0: there is none
  uint64_t info_bytes;
  uint64_t entries;  // slices that may begin pages; in release 1, pages
  uint64_t key;
  uint64_t used;  // number of pages; 0: released, and others may follow in its memory

  uint64_t end(const Layout& layout) const {
    return start + (used == 0 ? layout.alignment() : bytes);
  }
};

inline bool is_segment(const Segment& segment, const Layout& layout) {
  constexpr uint64_t kMaxInfoSlices = 64, kMaxSlices = 1ull << 31;
  uint64_t slices = segment.bytes / kSlice, info_slices = segment.info_bytes / kSlice;
  uint64_t first = segment.start + layout.slices;
  bool possible = info_slices > 0 && info_slices < kMaxInfoSlices &&
                  segment.entries > info_slices && segment.entries <= layout.alignment() / kSlice &&
                  slices >= segment.entries && slices < kMaxSlices &&
                  load<uint32_t>(segment.start + layout.kind) <= 1;
  bool begins = load<uint32_t>(first + kSliceCountField) == info_slices &&
                load<uint32_t>(first + kSliceOffsetField) == 0;
  // Releases differ in the size of a page's structure.
  uint64_t second = first + info_slices % kMaxInfoSlices * layout.page_bytes;
  bool can_continue = load<uint32_t>(second + kSliceCountField) != 0 &&
                      load<uint32_t>(second + kSliceOffsetField) == 0;
  return possible && begins && can_continue;
}

inline bool is_segment_1(const Segment& segment, const Layout& layout) {
  constexpr uint64_t kMaxPages = kLeastAlignment / kSlice, kMaxInfoBytes = 16 << 10;
  constexpr uint64_t kLargeShift = 22, kHugeShift = 23;
  uint64_t shift = word(segment.start + layout.page_shift);
  uint32_t kind = load<uint32_t>(segment.start + layout.kind);
  uint64_t structures = layout.slices + segment.entries % (kMaxPages + 1) * layout.page_bytes;
  bool has_one = segment.entries == 1 && kind >= 2 && segment.bytes % kPage == 0 &&
                 (shift == kLargeShift || shift == kHugeShift);
  bool has_several = segment.entries > 1 && segment.entries <= kMaxPages && shift < 64 &&
                     segment.entries << shift == segment.bytes &&
                     segment.bytes == layout.alignment();
  return kind <= 3 && (has_one || has_several) && segment.used <= segment.entries &&
         segment.info_bytes >= structures && segment.info_bytes <= kMaxInfoBytes;
}

// Reads the segment that starts at `at`; has no bytes if there is none.
inline Segment segment_at(const Space& space, uint64_t at, const Layout& layout) {
  constexpr uint64_t kMaxStructures = 64;
  uint64_t unit = layout.is_release_1() ? 1 : kSlice;
  if (at % layout.alignment() != 0 ||
      !space.readable(at, layout.slices + kMaxStructures * layout.page_bytes))
    return {};
  Segment segment{at,
                  word(at + layout.segment_size) * unit,
                  word(at + layout.info_size) * unit,
                  word(at + layout.entries),
                  word(at + layout.cookie) ^ at,
                  word(at + layout.segment_used)};
  bool is_one = layout.is_release_1() ? is_segment_1(segment, layout) : is_segment(segment, layout);
  return is_one && segment.key != 0 ? segment : Segment{};
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
  Page page{at,
            span.start,
            span.end,
            0,
            load<uint16_t>(at + kCapacityField),
            load<uint16_t>(at + kReservedField),
            load<uint16_t>(at + layout.used)};
  page.size =
      layout.notes_start() ? word(at + layout.block_size) : load<uint32_t>(at + layout.block_size);
  if (!layout.notes_start() && page.size >= layout.rules.huge) page.size = page.room();
  return page;
}

}  // namespace reachscan::heaps::mimalloc
