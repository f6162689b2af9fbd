// Structures of fontconfig that hold others by distances, since parts of them are in files that
// processes map anywhere (src/fcint.h). Most distances in one are short, like other numbers, but
// nothing else looks like the whole structure.
//
//   FcPattern                            FcCharSet
//     number of elements, room for           references, number of leaves
//     distance to the elements               distance to the leaves
//     references                             distance to the numbers
//
// An element has the number of an object, and a pointer to its values; elements are ordered by
// object. The leaves are distances from where they start. The numbers have 16 bits, in order.
#pragma once

#include "memory/block_map.hpp"
#include "memory/rounding.hpp"

namespace reachscan::sweeper {

class Fontconfig {
 public:
  Fontconfig(const heaps::Space& space, const heaps::BlockMap& blocks)
      : space_(space), blocks_(blocks) {}

  // Returns whether the word at `at` of the block is the distance to part of such a structure.
  bool is_distance(heaps::Range block, uint64_t at) const {
    uint64_t offset = at - block.start;
    if (offset == kFirst && is_pattern(block)) return true;
    return (offset == kFirst || offset == kSecond) && is_set(block);
  }

 private:
  static constexpr uint64_t kFirst = 8, kSecond = kFirst + heaps::kWord;
  static constexpr uint64_t kRoomStep = 16;  // elements
  static constexpr uint64_t kElementBytes = 2 * heaps::kWord, kLeafBytes = 32, kNumberBytes = 2;

  // Returns the block that the word at `at` is the distance to, if that many bytes of it can be
  // read.
  uint64_t part_at(uint64_t base, uint64_t at, uint64_t bytes) const {
    uint64_t part = heaps::wrapped(base + heaps::word(at));
    bool is_block = part % heaps::kGranule == 0 && blocks_.is_live(part);
    return is_block && bytes <= blocks_.end_of(part) - part && space_.readable(part, bytes) ? part
                                                                                            : 0;
  }

  bool is_pattern(heaps::Range block) const {
    if (!space_.readable(block.start, kSecond)) return false;
    uint64_t count = heaps::load<uint32_t>(block.start);
    uint64_t room = heaps::load<uint32_t>(block.start + 4), all = room * kElementBytes;
    uint64_t elements = part_at(block.start, block.start + kFirst, count * kElementBytes);
    if (count == 0 || count > room || room % kRoomStep != 0 || elements == 0) return false;
    uint64_t bytes = blocks_.end_of(elements) - elements;
    if (all > bytes || bytes - all > heaps::rounding(all)) return false;
    return are_ordered<uint32_t>(elements, count, kElementBytes);
  }

  bool is_set(heaps::Range block) const {
    uint64_t base = block.start;
    if (block.end - base < kSecond + heaps::kWord || !space_.readable(base, kSecond + heaps::kWord))
      return false;
    uint64_t count = heaps::load<uint32_t>(base + 4);
    uint64_t leaves = part_at(base, base + kFirst, count * heaps::kWord);
    uint64_t numbers = part_at(base, base + kSecond, count * kNumberBytes);
    if (count == 0 || leaves == 0 || numbers == 0) return false;
    for (uint64_t i = 0; i < count; ++i)
      if (part_at(leaves, leaves + i * heaps::kWord, kLeafBytes) == 0) return false;
    return are_ordered<uint16_t>(numbers, count, kNumberBytes);
  }

  // Returns whether each number is greater than the one before.
  template <typename Number>
  static bool are_ordered(uint64_t first, uint64_t count, uint64_t step) {
    for (uint64_t i = 1; i < count; ++i)
      if (heaps::load<Number>(first + i * step) <= heaps::load<Number>(first + (i - 1) * step))
        return false;
    return true;
  }

  const heaps::Space& space_;
  const heaps::BlockMap& blocks_;
};

}  // namespace reachscan::sweeper
