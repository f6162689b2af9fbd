// Writes what mimalloc records about its blocks. Releases 1 and 2: a segment with pages, their free
// lists, and the heap of a thread. Release 3: a map of pages, and an arena that contains them.
#pragma once

#include <map>
#include <vector>

#include "heaps/mimalloc/layout.hpp"
#include "heaps/mimalloc/page_map.hpp"
#include "memory.hpp"

namespace reachscan::tests {

class Mimalloc {
 public:
  static constexpr uint32_t kFile = 9;
  static constexpr uint64_t kData = kWorld;
  static constexpr uint64_t kMainHeap = kData + 0x100;
  static constexpr uint64_t kSegment = kWorld + (64 << 20);

  // The freed blocks of a page, by number.
  struct Freed {
    std::vector<unsigned> free, local, by_others, delayed;
  };

  explicit Mimalloc(const heaps::mimalloc::Layout& layout);

  // Adds a page of that many slices (in release 1, of whatever suits the size), the first
  // `given_out` blocks of which have been allocated. Returns its descriptor.
  uint64_t page(uint64_t size, uint64_t slices, unsigned given_out, const Freed& freed = {});

  Memory memory;
  std::map<uint64_t, uint64_t> blocks;  // sizes

 private:
  void begin_segment_1(bool large);
  void begin_segment_2();
  heaps::Range memory_of_page(uint64_t size, uint64_t slices);
  uint64_t describe(uint64_t slices);
  void end_of_segment();
  uint64_t link(uint64_t first, uint64_t size, const std::vector<unsigned>& numbers, uint64_t next);

  heaps::mimalloc::Layout layout_;
  uint64_t slices_;  // of the segment
  uint64_t segment_ = kSegment;
  bool large_ = false;  // the segment has one page
  uint64_t slice_ = 0;
  uint64_t delayed_ = 0;
};

class Mimalloc3 {
 public:
  static constexpr uint32_t kFile = 9;
  static constexpr uint64_t kData = kWorld;
  static constexpr uint64_t kVariable = kData + 0x100;
  static constexpr uint64_t kMap = kWorld + (64 << 20);
  static constexpr uint64_t kTable = kWorld + (72 << 20);
  static constexpr uint64_t kArena = kWorld + (512 << 20);
  static constexpr uint64_t kArenaBytes = 32 << 20;
  // For releases that keep page descriptors apart from the pages.
  static constexpr uint64_t kDescriptions = kArena + 0x4000;

  // The freed blocks of a page, by number.
  struct Freed {
    std::vector<unsigned> free, local, by_others;
  };

  explicit Mimalloc3(const heaps::mimalloc::PageLayout& layout);

  // Adds a page of that many slices (in release 1, of whatever suits the size), the first
  // `given_out` blocks of which have been allocated. Returns its descriptor.
  uint64_t page(uint64_t size, uint64_t slices, unsigned given_out, const Freed& freed = {});
  // Makes the arena list these slices as pages, as 3.0 does.
  void list_pages(const std::vector<uint64_t>& slices);
  // Returns the map's entry for the slice that holds `address`.
  static uint64_t entry_of(uint64_t address);

  Memory memory;
  std::map<uint64_t, uint64_t> blocks;  // sizes

 private:
  uint64_t link(uint64_t first, uint64_t size, const std::vector<unsigned>& numbers);

  heaps::mimalloc::PageLayout layout_;
  uint64_t slice_ = 1;
};

}  // namespace reachscan::tests
