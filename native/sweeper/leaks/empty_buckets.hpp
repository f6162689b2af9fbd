// Words in empty buckets of LLVM's hash tables. An array of buckets is not cleared when it is
// allocated: only the key of each bucket is set, and so the values of empty ones are stale.
// (llvm/ADT/DenseMap.h; DenseMapInfo.h for keys that are pointers.)
#pragma once

#include "memory/block_map.hpp"

namespace reachscan::sweeper {

using heaps::uint64_t;

class EmptyBuckets {
 public:
  explicit EmptyBuckets(const heaps::BlockMap& blocks) : blocks_(blocks) {}

  // Returns whether the word at `slot` of a block is the value in a bucket of a key and a value of
  // a word each, and the key says that the bucket is empty. A set has keys only, some of them next
  // to empty buckets, so there must be no such key where values are.
  bool has(uint64_t owner, uint64_t slot) const {
    if (slot == owner || !is_free_key(slot - heaps::kWord)) return false;
    uint64_t first = slot - owner < kAround ? owner : slot - kAround;
    uint64_t end = blocks_.end_of(owner) - slot < kAround ? blocks_.end_of(owner) : slot + kAround;
    unsigned free_keys = 0;
    for (uint64_t at = first; at + heaps::kWord <= end; at += heaps::kWord) {
      if (!is_free_key(at)) continue;
      if ((at - slot) % (2 * heaps::kWord) == 0) return false;
      ++free_keys;
    }
    return free_keys >= kMinFreeKeys;
  }

 private:
  static constexpr uint64_t kAround = 512;  // bytes
  // At least one bucket in eight is empty, and there are 64 in that stretch.
  static constexpr unsigned kMinFreeKeys = 4;

  // Whether a key at that place was never set, or was removed.
  static bool is_free_key(uint64_t at) {
    constexpr unsigned kAlignmentBits = 12;
    uint64_t key = heaps::word(at);
    return key == heaps::wrapped(~0ull << kAlignmentBits) ||
           key == heaps::wrapped(~1ull << kAlignmentBits);
  }

  const heaps::BlockMap& blocks_;
};

}  // namespace reachscan::sweeper
