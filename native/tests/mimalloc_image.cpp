// Lays out segments, maps, pages and heaps as mimalloc does.
#include "mimalloc_image.hpp"

namespace reachscan::tests {

using namespace heaps::mimalloc;

namespace {

constexpr uint64_t kKey = 0x6d6fa506ac470e94;
constexpr uint64_t kInfoBytes = 0x1a00;  // of a segment of release 1
constexpr uint64_t kForSegments = 64 * kMiB;

}  // namespace

Mimalloc::Mimalloc(const Layout& layout) : layout_(layout), slices_(layout.alignment() / kSlice) {
  memory.map(kData, 4 * heaps::kPage, kReadWrite, abi::kFileBacked, kFile);
  memory.map(kSegment, kForSegments);
  memory.put(kMainHeap + layout.heap_cookie, kKey);
  if (layout.is_release_1()) {
    begin_segment_1(false);
  } else {
    begin_segment_2();
  }
}

void Mimalloc::begin_segment_2() {
  memory.put(kSegment + layout_.cookie, kKey ^ kSegment);
  memory.put(kSegment + layout_.segment_size, slices_);
  memory.put(kSegment + layout_.entries, slices_);
  memory.put(kSegment + layout_.info_size, 1);
  describe(1);
  end_of_segment();
}

void Mimalloc::begin_segment_1(bool large) {
  memory.put(segment_ + layout_.cookie, kKey ^ segment_);
  memory.put(segment_ + layout_.segment_size, kLeastAlignment);
  memory.put(segment_ + layout_.info_size, kInfoBytes);
  memory.put(segment_ + layout_.entries, large ? 1 : kLeastAlignment / kSlice);
  memory.put(segment_ + layout_.page_shift, large ? 22 : 16);
  memory.store<uint32_t>(segment_ + layout_.kind, large ? 2 : 0);
  slice_ = 0;
  large_ = large;
}

heaps::Range Mimalloc::memory_of_page(uint64_t size, uint64_t slices) {
  bool large = size > kSlice;
  if (layout_.is_release_1() && large != large_) {
    segment_ += kLeastAlignment;
    begin_segment_1(large);
  }
  uint64_t start = segment_ + slice_ * kSlice;
  if (!layout_.is_release_1()) return {start, start + slices * kSlice};
  return {start + (slice_ == 0 ? kInfoBytes : 0),
          large ? segment_ + kLeastAlignment : start + kSlice};
}

uint64_t Mimalloc::page(uint64_t size, uint64_t slices, unsigned given_out, const Freed& freed) {
  heaps::Range span = memory_of_page(size, slices);
  uint64_t at = describe(layout_.is_release_1() ? 1 : slices);
  Start rule = layout_.rules.start == Start::kBehind384 ? Start::kBySize : layout_.rules.start;
  uint64_t first = span.start + offset_of_first(rule, size, span.start);
  memory.store<uint16_t>(at + kCapacityField, static_cast<uint16_t>(given_out));
  memory.store<uint16_t>(at + kReservedField, static_cast<uint16_t>((span.end - first) / size));
  uint64_t unused = freed.free.size() + freed.local.size();
  memory.store<uint16_t>(at + layout_.used, static_cast<uint16_t>(given_out - unused));
  if (layout_.notes_start()) {
    memory.put(at + layout_.block_size, size);
    memory.put(at + kStartField, first);
  } else {
    memory.store<uint32_t>(at + layout_.block_size, static_cast<uint32_t>(size));
  }
  for (unsigned i = 0; i < given_out; ++i) blocks[first + i * size] = size;
  memory.put(at + kFreeField, link(first, size, freed.free, 0));
  memory.put(at + layout_.local_free, link(first, size, freed.local, 0));
  memory.put(at + layout_.thread_free, link(first, size, freed.by_others, 0) | 2);
  delayed_ = link(first, size, freed.delayed, delayed_);
  memory.put(kMainHeap + layout_.heap_delayed, delayed_);
  memory.put(at + layout_.heap, kMainHeap);
  memory.put(segment_ + layout_.segment_used, heaps::word(segment_ + layout_.segment_used) + 1);
  end_of_segment();
  return at;
}

uint64_t Mimalloc::describe(uint64_t slices) {
  uint64_t at = segment_ + layout_.slices + slice_ * layout_.page_bytes;
  slice_ += slices;
  if (layout_.is_release_1()) {
    memory.store<uint8_t>(at + kInUseField, 1);
    return at - kLacking;
  }
  memory.put(at, slices);
  return at;
}

// The rest has no blocks.
void Mimalloc::end_of_segment() {
  if (!layout_.is_release_1())
    memory.put(kSegment + layout_.slices + slice_ * layout_.page_bytes, slices_ - slice_);
}

uint64_t Mimalloc::link(uint64_t first, uint64_t size, const std::vector<unsigned>& numbers,
                        uint64_t next) {
  for (unsigned number : numbers) {
    memory.put(first + number * size, next);
    next = first + number * size;
    blocks.erase(next);
  }
  return next;
}

Mimalloc3::Mimalloc3(const PageLayout& layout) : layout_(layout) {
  constexpr uint64_t kMapBytes = 2 << 20, kTableBytes = 8 * kTableSlots;
  constexpr uint64_t kFromKernel = 4;
  memory.map(kData, 4 * heaps::kPage, kReadWrite, abi::kFileBacked, kFile);
  memory.map(kMap, kMapBytes + kTableBytes);
  memory.map(kTable, kTableBytes);
  memory.map(kArena, kArenaBytes);
  memory.put(kVariable, kMap);
  memory.put(kMap, kMap + kMapBytes);
  uint64_t entry = kMap + 8 * (kArena / kMapSlice / kTableSlots);
  uint64_t used = entry & ~(heaps::kPage - 1), unused = used + heaps::kPage;
  memory.put(entry, kTable);
  memory.leave_out(kMap + heaps::kPage, used - kMap - heaps::kPage);
  memory.leave_out(unused, kMap + kMapBytes - unused);
  memory.put(kArena, kArena);
  memory.put(kArena + 8, kArenaBytes);
  memory.put(kArena + 16, kFromKernel);
}

uint64_t Mimalloc3::page(uint64_t size, uint64_t slices, unsigned given_out, const Freed& freed) {
  constexpr uint64_t kDescribed = 128, kInArena = 7;
  uint64_t slice = kArena + slice_ * kMapSlice;
  uint64_t at = layout_.notes_address ? slice : kDescriptions + slice_ * kDescribed;
  uint64_t first = slice + (layout_.notes_address ? kDescribed : 0);
  auto count = static_cast<uint16_t>(given_out);
  auto unused = static_cast<uint16_t>(freed.free.size() + freed.local.size());
  memory.store<uint16_t>(at + 16, static_cast<uint16_t>(count - unused));
  memory.store<uint16_t>(at + 18, count);
  memory.store<uint16_t>(at + 20,
                         static_cast<uint16_t>((slice + slices * kMapSlice - first) / size));
  memory.put(at + 40, size);
  memory.put(at + 48, layout_.notes_address ? first : (first - at) / 8);
  memory.put(at + layout_.memory, kArena);
  memory.put(at + layout_.memory + 16, kInArena);
  for (unsigned i = 0; i < given_out; ++i) blocks[first + i * size] = size;
  memory.put(at + 8, link(first, size, freed.free));
  memory.put(at + 24, link(first, size, freed.local));
  memory.put(at + 32, link(first, size, freed.by_others) | 1);
  for (uint64_t i = 0; i < slices; ++i) memory.put(entry_of(slice + i * kMapSlice), at);
  slice_ += slices;
  return at;
}

void Mimalloc3::list_pages(const std::vector<uint64_t>& slices) {
  constexpr uint64_t kLists = kArena + 0x1000, kBits = 128;
  memory.put(kArena + 64, kLists);
  memory.put(kArena + 96, kLists);
  uint64_t listed = 0;
  for (uint64_t slice : slices) listed |= uint64_t{1} << (slice - kArena) / kMapSlice;
  memory.put(kLists + kBits, listed);
}

uint64_t Mimalloc3::entry_of(uint64_t address) {
  return kTable + 8 * (address / kMapSlice % kTableSlots);
}

uint64_t Mimalloc3::link(uint64_t first, uint64_t size, const std::vector<unsigned>& numbers) {
  uint64_t next = 0;
  for (unsigned number : numbers) {
    memory.put(first + number * size, next);
    next = first + number * size;
    blocks.erase(next);
  }
  return next;
}

}  // namespace reachscan::tests
