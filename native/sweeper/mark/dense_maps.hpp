// LLVM's hash tables (DenseMap): arrays of pairs of a key and a value, here of a word each, in
// blocks of their own or inside others. An array is not cleared when it is created. Only the keys
// are set, so the value of a free key is what was in the memory before.
//
//   key     value
//   0x55..  0x55..
//   -4096   stale   never used
//   -8192   stale   removed
//
// (llvm/ADT/DenseMap.h; DenseMapInfo.h for keys that are pointers.)
#pragma once

#include "arch/lanes.hpp"
#include "sweeper/blob/host.hpp"

namespace reachscan::sweeper {

class FreeKeys {
 public:
  static bool is_one(uint64_t word) { return word == kNeverUsed || word == kRemoved; }

  // Returns whether there is probably one in [start, end).
  static bool may_be_in(uint64_t start, uint64_t end) {
    if (has_wide_words()) return may_be_in_wide(start, end);
    bool any = false;
    for (; start + heaps::kWord <= end; start += heaps::kWord) any |= is_one(heaps::word(start));
    return any;
  }

 private:
  static constexpr unsigned kAlignmentBits = 12;
  static constexpr uint64_t kNeverUsed = heaps::wrapped(~0ull << kAlignmentBits);
  static constexpr uint64_t kRemoved = heaps::wrapped(~1ull << kAlignmentBits);

  // May skip up to seven words at the end.
  [[gnu::target(REACHSCAN_WIDE_TARGET)]] static bool may_be_in_wide(uint64_t start, uint64_t end) {
    constexpr uint64_t kLength = kNeverUsed - kRemoved + 1, kHalf = heaps::kLine / 2;
    arch::Masks any{};
    for (; start + heaps::kLine <= end; start += heaps::kLine)
      any |= arch::are_within(arch::load_lanes(start), kRemoved, kLength) |
             arch::are_within(arch::load_lanes(start + kHalf), kRemoved, kLength);
    return arch::bits_of(any) != 0;
  }
};

// Returns whether a look at the words after free keys is worthwhile.
inline bool may_contain_dense_map(heaps::Range block) {
  constexpr uint64_t kMinBytes = 128, kWholeBytes = 4096, kSample = 512;
  uint64_t size = block.end - block.start;
  if (size <= kMinBytes) return false;
  return FreeKeys::may_be_in(block.start, size > kWholeBytes ? block.start + kSample : block.end);
}

// Returns whether the word at `slot` of a block that may contain tables is the value of a free key.
// A set has keys only, so there must be no free key around where values are.
inline bool is_value_of_free_key(heaps::Range block, uint64_t slot) {
  // At least one key in eight is free, and there are 64 in that stretch.
  constexpr uint64_t kAround = 512, kMinFreeKeys = 4;
  if (slot == block.start || !FreeKeys::is_one(heaps::word(slot - heaps::kWord))) return false;
  uint64_t at = slot - block.start < kAround ? block.start : slot - kAround;
  uint64_t end = block.end - slot < kAround ? block.end : slot + kAround;
  uint64_t free_keys = 0;
  for (; at + heaps::kWord <= end; at += heaps::kWord) {
    if (!FreeKeys::is_one(heaps::word(at))) continue;
    if ((at - slot) % (2 * heaps::kWord) == 0) return false;
    ++free_keys;
  }
  return free_keys >= kMinFreeKeys;
}

// Returns whether the word at `slot` of the block that starts at `owner` was there before the block
// was allocated: as the value of a free key, or probably as a link of a free list.
inline bool is_left_behind(const heaps::BlockMap& blocks, uint64_t owner, uint64_t slot,
                           uint64_t value) {
  if (blocks.is_leftover(owner, slot, value)) return true;
  if (slot == owner || !FreeKeys::is_one(heaps::word(slot - heaps::kWord))) return false;
  heaps::Range block{owner, blocks.end_of(owner)};
  return may_contain_dense_map(block) && is_value_of_free_key(block, slot);
}

}  // namespace reachscan::sweeper
