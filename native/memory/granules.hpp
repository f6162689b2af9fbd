// The granules of small grey blocks that may hold pointers, found for all blocks of a span at once.
//
// Marking reads these granules only, where it is known which others are blank (blanks.hpp).
#pragma once

#include "memory/cluster.hpp"
#include "memory/leftover.hpp"

namespace reachscan::heaps {

// A granule to scan: its address, and in the low bits how.
//
//   kElsewhere   its words do not come from the head of a block (leftover.hpp)
//   kIsLast      the second word is not part of the block (common form)
using Granule = uint64_t;
constexpr uint64_t kIsLast = kWord;

// 64 granules, a bit for each.
struct Window {
  uint64_t base;
  uint64_t edges;  // starts and boundaries
  uint64_t blank;

  // Returns those of `blocks` that take at most 128 bytes and end in this window.
  uint64_t small(uint64_t blocks) const {
    uint64_t before = edges >> 1;
    before |= before >> 1;
    before |= before >> 2;
    before |= before >> 4;
    if (kFine) before |= before >> 8;
    return blocks & before;
  }

  // Calls visit(granule) for each granule of these blocks, which end in this window, that is not
  // blank.
  template <typename Visit>
  [[gnu::always_inline]] void visit_granules(uint64_t blocks, Visit visit) const {
    // Adding the first one to a run of ones clears it and sets the bit behind.
    const uint64_t inner = ~edges, cleared = inner + (blocks << 1 & inner);
    const uint64_t filled = blocks | (inner & (inner ^ cleared));
    uint64_t heads = blocks | blocks << 1;
    if (kFine) heads |= heads << 2;
    static_assert(kHeadBytes == (kFine ? 4 : 2) * kGranule || kWord != 8);
    for (uint64_t left = filled & ~blank; left != 0; left &= left - 1) {
      auto bit = static_cast<unsigned>(__builtin_ctzll(left));
      uint64_t how = ((heads >> bit & 1) - 1) & kElsewhere;
      if (!kFine) how |= (edges >> 1 >> bit & 1) * kIsLast;
      visit(base + bit * kGranule + how);
    }
  }
};

}  // namespace reachscan::heaps
