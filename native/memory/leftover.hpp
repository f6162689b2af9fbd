// What an allocator's free lists leave behind in blocks that are in use again.
#pragma once

#include <bit>

#include "memory/space.hpp"

namespace reachscan::heaps {

// The first bytes of a block that was once free: the free lists may have left pointers there, to
// the neighbours in the list and in the list of sizes.
constexpr uint64_t kHeadBytes = 4 * kWord;

inline Range head_of(Range block) {
  bool all = block.end - block.start <= kHeadBytes;
  return {block.start, all ? block.end : block.start + kHeadBytes};
}

// The low bits of a word do not affect which block it points into. They are set in words that do
// not come from the head of a block, so that these are never taken for leftovers of a free list.
constexpr uint64_t kElsewhere = kWord - 1;

// Returns whether a word is in the same part of the address space as the place where it was found.
// This is true of pointers to memory since released, and of free list links, which glibc mixes with
// the upper bits of their own address (safe-linking). Their bytes may all be letters in one run of
// a program and not in the next.
constexpr bool may_be_stale_at(uint64_t place, uint64_t word) {
  constexpr int kBitsThatStay = 12;
  return (word ^ place) >> (std::bit_width(place) - kBitsThatStay) == 0;
}

// Returned in place of a block for a word that a free list may have left behind.
constexpr uint64_t kLeftover = 1;

}  // namespace reachscan::heaps
