// LLVM's hash tables (DenseMap): arrays of 2^n pairs of a key and a value, here of a word each. An
// array is not cleared when it is allocated. Only the keys are set, so the value of a free key is
// what was in the memory before.
//
//   key     value
//   0x55..  0x55..
//   -4096   stale   never used
//   -8192   stale   removed
//
// (llvm/ADT/DenseMap.h; DenseMapInfo.h for keys that are pointers.)
#pragma once

#include <bit>

#include "memory/block_map.hpp"

namespace reachscan::sweeper {

constexpr uint64_t kPairBytes = 2 * heaps::kWord;

inline bool is_free_key(uint64_t key) {
  constexpr unsigned kAlignmentBits = 12;
  return key == heaps::wrapped(~0ull << kAlignmentBits) ||
         key == heaps::wrapped(~1ull << kAlignmentBits);
}

// Judges by the size of the block and by its first pairs. A set has keys only, so there must be no
// free key where values are.
inline bool is_dense_map(heaps::Range block) {
  constexpr uint64_t kMinPairs = 16, kSample = 32;  // at least one key in eight is free
  constexpr uint64_t kMinFreeKeys = 4;
  constexpr uint64_t kRounding = 16;  // what the allocator may have added
  uint64_t size = block.end - block.start, array = std::bit_floor(size);
  if (array < kMinPairs * kPairBytes || size - array >= kRounding) return false;
  uint64_t sample = array < kSample * kPairBytes ? array : kSample * kPairBytes;
  uint64_t free_keys = 0;
  for (uint64_t at = block.start; at < block.start + sample; at += kPairBytes) {
    if (is_free_key(heaps::word(at + heaps::kWord))) return false;
    free_keys += is_free_key(heaps::word(at));
  }
  return free_keys >= kMinFreeKeys;
}

// Returns whether the word at `slot` of the block that starts at `owner` was there before the block
// was allocated: in a free pair, or probably the link of a free list.
inline bool is_left_behind(const heaps::BlockMap& blocks, uint64_t owner, uint64_t slot,
                           uint64_t value) {
  if (blocks.is_leftover(owner, slot, value)) return true;
  bool may_be_free =
      (slot - owner) % kPairBytes == heaps::kWord && is_free_key(heaps::word(slot - heaps::kWord));
  return may_be_free && is_dense_map({owner, blocks.end_of(owner)});
}

}  // namespace reachscan::sweeper
