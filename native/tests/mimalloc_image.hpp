// Writes what mimalloc 2 keeps about its blocks: a segment with pages, their lists of free blocks,
// and the heap of a thread.
#pragma once

#include <map>
#include <vector>

#include "heaps/mimalloc/layout.hpp"
#include "memory.hpp"

namespace reachscan::tests {

class Mimalloc {
 public:
  static constexpr uint32_t kFile = 9;
  static constexpr uint64_t kData = kWorld;
  static constexpr uint64_t kMainHeap = kData + 0x100;
  static constexpr uint64_t kSegment = kWorld + (64 << 20);

  // What has become of blocks of a page, by their numbers.
  struct Freed {
    std::vector<unsigned> free, local, by_others, delayed;
  };

  explicit Mimalloc(const heaps::mimalloc::Layout& layout);

  // A page of so many slices, of which `given_out` blocks were ever given out. Returns where it is
  // described.
  uint64_t page(uint64_t size, uint64_t slices, unsigned given_out, const Freed& freed = {});

  Memory memory;
  std::map<uint64_t, uint64_t> blocks;  // sizes

 private:
  uint64_t describe(uint64_t slices);
  void end_of_segment();
  uint64_t link(uint64_t first, uint64_t size, const std::vector<unsigned>& numbers, uint64_t next);

  heaps::mimalloc::Layout layout_;
  uint64_t slice_ = 0;
  uint64_t delayed_ = 0;
};

}  // namespace reachscan::tests
