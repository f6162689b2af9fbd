// What the free lists of an allocator leave behind in blocks that are in use again.
#pragma once

#include <bit>

#include "memory/space.hpp"

namespace reachscan::heaps {

// The first bytes of a block that was free once hold what the allocator's free lists left there:
// pointers to the neighbours in the list and in the list of sizes.
constexpr uint64_t kHeadBytes = 4 * kWord;

inline Range head_of(Range block) {
  bool all = block.end - block.start <= kHeadBytes;
  return {block.start, all ? block.end : block.start + kHeadBytes};
}

// The low bits of a word do not matter to which block it points into. Words from elsewhere than the
// head of a block have them set, so that they cannot be taken for what a free list left behind.
constexpr uint64_t kElsewhere = kWord - 1;

// Whether a word lies as far up in memory as the place that it was found at. There lie pointers to
// memory that is gone, and links of free lists, which glibc mixes with the upper bits of their own
// place (safe-linking). Their bytes may all be letters in one run of a program and not in the next.
constexpr bool may_be_left_at(uint64_t place, uint64_t word) {
  constexpr int kBitsThatStay = 12;
  return (word ^ place) >> (std::bit_width(place) - kBitsThatStay) == 0;
}

// In place of a block: what a free list may have left behind.
constexpr uint64_t kLeftover = 1;

}  // namespace reachscan::heaps
