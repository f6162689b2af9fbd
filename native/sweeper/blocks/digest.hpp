// A digest of a block's contents, by which scans of different moments tell whether it is the same.
#pragma once

#include "sweeper/mark/words.hpp"

namespace reachscan::sweeper {

// Zero words do not count, so pages that were never written need not be read. Blocks of one size
// that differ in one word have different digests, with near certainty.
inline uint64_t digest_of(const heaps::Space& space, uint64_t start, uint64_t size) {
  uint64_t sum = 0;
  each_word(space, start, start + size, [&](uint64_t at, uint64_t value) {
    if (value == 0) return;
    // The finalizer of MurmurHash3, over value and offset.
    uint64_t mixed = value + (at - start + 8) * 0x9e3779b97f4a7c15ull;
    mixed = (mixed ^ mixed >> 33) * 0xff51afd7ed558ccdull;
    mixed = (mixed ^ mixed >> 33) * 0xc4ceb9fe1a85ec53ull;
    sum += mixed ^ mixed >> 33;
  });
  return sum;
}

}  // namespace reachscan::sweeper
