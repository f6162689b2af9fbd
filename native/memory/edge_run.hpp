// Adds blocks and boundaries to a BlockMap in the order of their addresses, a pair of words at a
// time.
#pragma once

#include "memory/block_map.hpp"

namespace reachscan::heaps {

class EdgeRun {
 public:
  explicit EdgeRun(BlockMap& blocks) : blocks_(blocks) {}

  void add_live(uint64_t address) {
    uint64_t bit = bit_at(address);
    starts_ |= bit;
    boundaries_ &= ~bit;
  }
  void add_boundary(uint64_t address) {
    uint64_t bit = bit_at(address);
    boundaries_ |= bit;
    starts_ &= ~bit;
  }

  // Must be called at the end.
  void flush() {
    if ((starts_ | boundaries_) != 0) blocks_.add_edges(base_, starts_, boundaries_);
    starts_ = boundaries_ = 0;
  }

 private:
  uint64_t bit_at(uint64_t address) {
    if (address - base_ >= kSpan) {
      flush();
      base_ = address & ~(kSpan - 1);
    }
    return 1ull << bit_of(address);
  }

  BlockMap& blocks_;
  uint64_t base_ = 0;
  uint64_t starts_ = 0, boundaries_ = 0;
};

}  // namespace reachscan::heaps
