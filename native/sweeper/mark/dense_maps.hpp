// LLVM's hash tables (DenseMap): arrays of buckets, each a key and a value. An array is not cleared
// when it is created. Only the keys are set, so the value of a free key is what was in the memory
// before.
//
//   key     value
//   0x55..  0x55..
//   -4096   stale   never used
//   -8192   stale   removed
//
// (llvm/ADT/DenseMap.h; DenseMapInfo.h for keys that are pointers.) Arrays of pairs, with a word
// for the key and one for the value, may be inside other blocks. Larger buckets are recognised only
// in blocks of their own.
#pragma once

#include <bit>
#include <optional>

#include "arch/lanes.hpp"
#include "memory/rounding.hpp"
#include "sweeper/blob/host.hpp"
#include "sweeper/mark/lua_arrays.hpp"

namespace reachscan::sweeper {

class FreeKeys {
 public:
  static bool is_one(uint64_t word) { return word == kNeverUsed || word == kRemoved; }
  static bool is_never_used(uint64_t word) { return word == kNeverUsed; }

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

// Returns whether the word at `slot` is the value in a pair whose key is free. A set has keys only,
// so there must be no free key around where values are.
inline bool is_value_in_free_pair(heaps::Range block, uint64_t slot) {
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

// Keys that are numbers, in their lower half or all of the word: -1 was never used, -2 is removed.
// Unlike pointers, they prove nothing by themselves.
struct FreeNumbers {
  static bool is_one(uint64_t word) { return static_cast<uint32_t>(word) >= ~1u; }
  static bool is_never_used(uint64_t word) { return static_cast<uint32_t>(word) == ~0u; }
};

// A block that is nothing but a table, with buckets of any size.
template <typename Keys>
class DenseMap {
 public:
  static constexpr uint64_t kMostWords = 16;  // of a bucket

  explicit DenseMap(heaps::Range block) : start_(block.start) {
    // Free keys may be at regular intervals, so the smallest buckets that are possible count.
    for (words_ = 2; words_ <= kMostWords; ++words_)
      if (would_fit(block.end - block.start) && find_key()) break;
    if (words_ > kMostWords || (words_ == 2 && may_be_set_)) words_ = 0;
  }

  // The number of words of a bucket, 0 if the block is no table.
  uint64_t columns() const { return words_; }

  // In a table: the position of a word in its bucket, and whether it belongs to the value.
  uint64_t column_of(uint64_t slot) const { return (slot - start_) / heaps::kWord % words_; }
  bool is_value(uint64_t slot) const { return column_of(slot) >= key_end_; }

  // In a table: whether the key of the word's bucket is free.
  bool is_free_around(uint64_t slot) const {
    return is_whole_key((slot - start_) / heaps::kWord / words_, Keys::is_one);
  }

  // Returns whether the block is a table, and the word at `slot` belongs to the value of a free
  // key.
  bool is_value_of_free_key(uint64_t slot) const {
    return words_ != 0 && is_value(slot) && is_free_around(slot);
  }

 private:
  // LLVM never allocates fewer, and at least one key in eight was never used. Where a table of
  // another sort has replaced one of these, fewer such keys are left.
  static constexpr uint64_t kLeastBuckets = 64, kOneInFree = 8;
  static constexpr uint64_t kMostBuckets = 512;  // that are examined

  bool would_fit(uint64_t block_bytes) {
    uint64_t buckets = std::bit_floor(block_bytes / (words_ * heaps::kWord));
    uint64_t bytes = buckets * words_ * heaps::kWord;
    are_all_ = buckets <= kMostBuckets;
    buckets_ = are_all_ ? buckets : kMostBuckets;
    return buckets >= kLeastBuckets && block_bytes - bytes <= heaps::rounding(bytes);
  }

  // Finds which words of the first buckets are keys. Values may look like free keys, too: before,
  // another table may have been there.
  bool find_key() {
    uint64_t free[kMostWords] = {}, most = 0;
    for (uint64_t word = 0; word < buckets_ * words_; ++word)
      if (Keys::is_one(word_at(word)) && ++free[word % words_] > most) ++most;
    auto is_key = [&](uint64_t word) {
      return 4 * free[word] >= most && !differ(free[word], most);
    };
    for (key_ = 0; !is_key(key_);) ++key_;
    for (key_end_ = key_; key_end_ < words_ && is_key(key_end_);) ++key_end_;
    for (uint64_t word = key_end_; word < words_; ++word)
      if (is_key(word)) return false;
    may_be_set_ = !differ(free[words_ - 1], most);
    return most >= buckets_ / kOneInFree && key_end_ < words_ && has_enough_never_used();
  }

  // Where the keys never used are one in eight, the first buckets may have fewer by chance.
  bool has_enough_never_used() const {
    uint64_t never_used = 0;
    for (uint64_t bucket = 0; bucket < buckets_; ++bucket)
      never_used += is_whole_key(bucket, Keys::is_never_used);
    return never_used >= buckets_ / (are_all_ ? kOneInFree : 2 * kOneInFree);
  }

  // Returns whether two columns with so many free keys are not both keys of a set: chance would put
  // them where they are less than once in a million times (five standard deviations).
  bool differ(uint64_t fewer, uint64_t more) const {
    uint64_t free = fewer + more, difference = more - fewer;
    return 2 * buckets_ * difference * difference > 25 * free * (2 * buckets_ - free);
  }

  uint64_t word_at(uint64_t index) const { return heaps::word(start_ + heaps::kWord * index); }

  // Returns whether all words of a bucket's key pass the test.
  template <typename Test>
  bool is_whole_key(uint64_t bucket, Test passes) const {
    for (uint64_t word = key_; word < key_end_; ++word)
      if (!passes(word_at(bucket * words_ + word))) return false;
    return true;
  }

  uint64_t start_;
  uint64_t words_;        // of a bucket
  uint64_t buckets_ = 0;  // that are examined
  bool are_all_ = true;
  uint64_t key_, key_end_ = 0;  // the words of a bucket that are its key
  bool may_be_set_ = false;     // the last word of a bucket may be a key, too
};

// Tells which words of a block were there before it was allocated: values of free keys, and
// probably links of free lists.
class LeftBehind {
 public:
  LeftBehind(const heaps::BlockMap& blocks, uint64_t block)
      : blocks_(blocks), block_{block, blocks.end_of(block)} {
    if (may_contain_dense_map(block_)) table_.emplace(block_);
  }

  uint64_t block() const { return block_.start; }

  bool has(uint64_t slot, uint64_t value) const {
    if (slot - block_.start < heaps::kHeadBytes && blocks_.is_link(value))
      return !holds_array(slot);
    if (!table_) return false;
    return is_value_in_free_pair(block_, slot) || table_->is_value_of_free_key(slot);
  }

 private:
  bool holds_array(uint64_t slot) const {
    return slot - block_.start == LuaArrays::kPointer && LuaArrays::array_of(blocks_, block_) != 0;
  }

  const heaps::BlockMap& blocks_;
  heaps::Range block_;
  std::optional<DenseMap<FreeKeys>> table_;
};

}  // namespace reachscan::sweeper
