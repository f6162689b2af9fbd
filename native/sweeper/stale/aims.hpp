// Where the words of a place lead, which tells pointers that are in use from stale words.
//
// A pointer field leads to the starts of blocks, rarely elsewhere. Stale words are of all sorts:
// many point into the middle of blocks, and some to memory that is now free, to which no program
// keeps pointers for long.
#pragma once

#include "memory/block_map.hpp"

namespace reachscan::sweeper {

using heaps::BlockMap;

struct Aims {
  uint64_t starts, inside, dangling;

  // Thread-safe.
  void count(const BlockMap& blocks, uint64_t value) {
    if (!blocks.may_point(value)) return;
    uint64_t target = blocks.block_of(value);
    if (target == value) {
      add_one(starts);
    } else if (target != 0 || blocks.block_of(value - 1) != 0) {
      add_one(inside);
    } else if (blocks.region_of(value) != nullptr) {
      add_one(dangling);
    }
  }

  bool look_stale() const { return dangling != 0 || inside > starts; }

 private:
  static void add_one(uint64_t& count) { __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED); }
};

}  // namespace reachscan::sweeper
