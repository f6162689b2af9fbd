// Lays out a segment, pages and a heap as mimalloc does.
#include "mimalloc_image.hpp"

namespace reachscan::tests {

using namespace heaps::mimalloc;

namespace {

constexpr uint64_t kKey = 0x6d6fa506ac470e94;

}  // namespace

Mimalloc::Mimalloc(const Layout& layout) : layout_(layout) {
  memory.map(kData, 4 * heaps::kPage, kReadWrite, abi::kFileBacked, kFile);
  memory.map(kSegment, kSegmentAlignment);
  memory.put(kMainHeap + layout.heap_cookie, kKey);
  memory.put(kSegment + layout.cookie, kKey ^ kSegment);
  memory.put(kSegment + layout.segment_slices, kMostEntries);
  memory.put(kSegment + layout.entries, kMostEntries);
  memory.put(kSegment + layout.info_slices, 1);
  describe(1);
  end_of_segment();
}

uint64_t Mimalloc::page(uint64_t size, uint64_t slices, unsigned given_out, const Freed& freed) {
  uint64_t start = kSegment + slice_ * kSlice, at = describe(slices);
  uint64_t first = start + offset_of_first(Start::kBySize, size);
  memory.store<uint16_t>(at + kCapacityField, static_cast<uint16_t>(given_out));
  memory.store<uint16_t>(at + kReservedField,
                         static_cast<uint16_t>((start + slices * kSlice - first) / size));
  uint64_t unused = freed.free.size() + freed.local.size();
  memory.store<uint16_t>(at + layout_.used, static_cast<uint16_t>(given_out - unused));
  if (layout_.notes_start) {
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
  memory.put(kSegment + layout_.cookie - kUsedBeforeCookie,
             heaps::word(kSegment + layout_.cookie - kUsedBeforeCookie) + 1);
  end_of_segment();
  return at;
}

uint64_t Mimalloc::describe(uint64_t slices) {
  uint64_t at = kSegment + layout_.slices + slice_ * layout_.page_bytes;
  memory.put(at, slices);
  slice_ += slices;
  return at;
}

// What is left has no blocks.
void Mimalloc::end_of_segment() {
  memory.put(kSegment + layout_.slices + slice_ * layout_.page_bytes, kMostEntries - slice_);
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

}  // namespace reachscan::tests
