// Recognises containers by the words in the objects that own them.
#pragma once

#include <optional>

#include "memory/block_map.hpp"
#include "memory/rounding.hpp"

namespace reachscan::sweeper {

using heaps::BlockMap;

// std::deque of libstdc++ (bits/stl_deque.h): the map of its nodes, the size of that, and an
// iterator each for its first element and for its end.
class DequeTest {
 public:
  static constexpr uint64_t kIterator = 4 * heaps::kWord;  // current, first, last, node

  DequeTest(const heaps::Space& space, const BlockMap& blocks) : space_(space), blocks_(blocks) {}

  bool is_iterator(uint64_t at) const {
    if (!space_.readable(at, kIterator)) return false;
    uint64_t current = heaps::word(at), first = heaps::word(at + heaps::kWord),
             last = heaps::word(at + 2 * heaps::kWord), node = heaps::word(at + 3 * heaps::kWord);
    return first <= current && current < last && node % heaps::kWord == 0 &&
           space_.readable(node, heaps::kWord) && heaps::word(node) == first;
  }

  // Returns whether the iterator for the first element is there, not only a copy of one.
  bool has_first(uint64_t at) const {
    constexpr uint64_t kBefore = 2 * heaps::kWord;
    if (!is_iterator(at) || !is_iterator(at + kIterator)) return false;
    if (!space_.readable(at - kBefore, kBefore)) return false;
    uint64_t map = heaps::word(at - kBefore), node = heaps::word(at + 3 * heaps::kWord);
    return blocks_.is_live(map) && (node - map) / heaps::kWord < heaps::word(at - heaps::kWord);
  }
  bool has_end(uint64_t at) const { return has_first(at - kIterator); }

 private:
  const heaps::Space& space_;
  const BlockMap& blocks_;
};

// The buckets of a map, each of which begins with its key.
struct Buckets {
  uint64_t start, bytes_each;
  uint64_t free_key;
  bool are_all_free;  // objects in a row, all of one class, look alike

  // Returns whether the word belongs to the value of a free key.
  bool is_value_of_free_key(uint64_t slot) const {
    uint64_t offset = (slot - start) % bytes_each;
    return offset != 0 && heaps::word(slot - offset) == free_key;
  }
};

// llvm::DenseMap (llvm/ADT/DenseMap.h): the pointer to its buckets, and three numbers of 32 bits,
// of entries, removed keys, and buckets. `slot`: of the pointer; `block`: what it points to.
// Returns nothing unless that many keys are alike, as free ones are.
inline std::optional<Buckets> buckets_of_map(const heaps::Space& space, uint64_t slot,
                                             heaps::Range block) {
  constexpr uint64_t kLeastBuckets = 64;  // LLVM never allocates fewer
  constexpr uint64_t kKeysTried = 16;     // one in eight is free
  uint64_t at = slot + heaps::kWord, bytes = block.end - block.start;
  if (!space.readable(at, 3 * sizeof(uint32_t))) return {};
  uint64_t taken = heaps::load<uint32_t>(at) + uint64_t{heaps::load<uint32_t>(at + 4)};
  uint64_t count = heaps::load<uint32_t>(at + 8);
  bool is_power_of_two = (count & (count - 1)) == 0;
  if (count < kLeastBuckets || !is_power_of_two || taken >= count) return {};
  uint64_t bytes_each = bytes / count & ~(heaps::kWord - 1);
  if (bytes_each <= heaps::kWord || bytes - bytes_each * count > heaps::rounding(bytes)) return {};
  auto key = [&](uint64_t i) { return heaps::word(block.start + bytes_each * i); };
  for (uint64_t i = 0; i < kKeysTried; ++i) {
    uint64_t alike = 0;
    for (uint64_t j = 0; j < count; ++j) alike += key(j) == key(i) ? 1 : 0;
    if (alike == count - taken) return Buckets{block.start, bytes_each, key(i), taken == 0};
  }
  return {};
}

}  // namespace reachscan::sweeper
