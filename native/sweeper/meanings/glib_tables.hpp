// GLib's hash tables, as far as they keep pointers in 32 bits. GLib does not clear the slots of a
// new table. Most slots of a small one are empty, and contain what an earlier block left there, so
// that what is around a pointer tells little (narrow.hpp).
//
// A table has three arrays: keys, hashes, and values. A slot is empty if its hash is 0, and was if
// it is 1. The structure that points to the three counts the slots in use, and those that are or
// were: if the hashes are as many, it is such a table. Source: struct _GHashTable in glib/ghash.c,
// since 2.60.
#pragma once

#include "memory/rounding.hpp"
#include "sweeper/mark/hash.hpp"
#include "sweeper/mark/scratch.hpp"
#include "sweeper/mark/spin_lock.hpp"
#include "sweeper/mark/words.hpp"
#include "sweeper/search/range_filter.hpp"
#include "sweeper/search/stretches.hpp"

namespace reachscan::sweeper {

using heaps::BlockMap;
using heaps::List;

class GlibTables {
 public:
  enum class Slot { kUnknown, kEmpty, kUsed };

  GlibTables(const heaps::Space& space, const BlockMap& blocks) : space_(space), blocks_(blocks) {}

  // Finds the tables of the arrays that these words may be in, by reading the whole heap.
  void find(const List<uint64_t>& words) {
    if (words.empty()) return;
    arrays_ = List<Array>(map_memory, words.size());
    for (uint64_t word : words) {
      uint64_t block = blocks_.block_of(word);
      if (block != 0 && slots_of(block) != 0) arrays_.push({block, 0});
    }
    heaps::sort(arrays_, is_before);
    if (arrays_.empty()) return;
    Scratch<uint64_t> hints((1u << kHintBits) / 64);
    for (const Array& array : arrays_) hints[hint_of(array.block) / 64] |= hint_bit(array.block);
    const RangeFilter pointers(
        heaps::Range{arrays_[0].block, arrays_[arrays_.size() - 1].block + 1});
    visit_heap(blocks_, [&](uint64_t start, uint64_t end) {
      each_word_that(space_, start, end, pointers, [&](uint64_t at, uint64_t value) {
        if ((hints[hint_of(value) / 64] & hint_bit(value)) == 0 || index_of(value) == kNone) return;
        look_at_table(at);
        look_at_table(at - kToValues);
      });
    });
  }

  // Says what the slot at `at` is in the array that is this block.
  Slot slot(uint64_t block, uint64_t at) const {
    std::size_t array = index_of(block);
    if (array == kNone || arrays_[array].hashes == 0) return Slot::kUnknown;
    uint64_t slot = (at - block) / kSlotBytes;
    return slot < slots_of(block) && is_used(arrays_[array].hashes, slot) ? Slot::kUsed
                                                                          : Slot::kEmpty;
  }

 private:
  static constexpr uint64_t kSlotBytes = 4, kFewestSlots = 8;
  // From the pointer to the keys to the other pointers, and to what follows the one to the values.
  static constexpr uint64_t kToHashes = 8, kToValues = 16, kToEnd = 24;
  // From the mask to that pointer, if the size before it has 64 bits, or 32 as in older versions.
  // The numbers of slots in use, and of those that are or were, follow the mask.
  static constexpr uint64_t kFromMask = 20, kFromOlderMask = 16;
  static constexpr unsigned kHintBits = 18;
  static constexpr std::size_t kNone = ~std::size_t{0};

  struct Array {
    uint64_t block;
    uint64_t hashes;  // 0: of no known table
  };

  static bool is_before(const Array& a, const Array& b) { return a.block < b.block; }

  static uint64_t hint_of(uint64_t block) { return mixed(0, block) >> (64 - kHintBits); }
  static uint64_t hint_bit(uint64_t block) { return 1ull << hint_of(block) % 64; }

  static uint32_t number(uint64_t at) { return *reinterpret_cast<const uint32_t*>(at); }
  static bool is_used(uint64_t hashes, uint64_t index) {
    return number(hashes + kSlotBytes * index) > 1;
  }

  uint64_t size_of(uint64_t block) const { return blocks_.end_of(block) - block; }

  // Returns how many slots fit into a block that is just large enough for a power of two of them;
  // 0 if it is larger.
  uint64_t slots_of(uint64_t block) const {
    uint64_t size = size_of(block), slots = kFewestSlots;
    while (2 * slots * kSlotBytes <= size) slots *= 2;
    return size - slots * kSlotBytes <= heaps::rounding(size) ? slots : 0;
  }

  std::size_t index_of(uint64_t block) const {
    std::size_t i = heaps::lower_bound(arrays_, Array{block, 0}, is_before);
    return i < arrays_.size() && arrays_[i].block == block ? i : kNone;
  }

  // `keys`: where the pointer to the keys is, if there is a table.
  void look_at_table(uint64_t keys) {
    uint64_t owner = blocks_.block_of(keys);
    if (owner == 0 || !blocks_.is_marked(owner)) return;
    if (keys - owner < kFromMask || blocks_.end_of(owner) - keys < kToEnd) return;
    for (uint64_t to_mask : {kFromMask, kFromOlderMask})
      if (counts_match(keys - to_mask, heaps::word(keys + kToHashes)))
        for (uint64_t to_array : {uint64_t{0}, kToValues})
          add(heaps::word(keys + to_array), heaps::word(keys + kToHashes), number(keys - to_mask));
  }

  bool counts_match(uint64_t at_mask, uint64_t hashes) const {
    uint64_t slots = uint64_t{number(at_mask)} + 1;
    if ((slots & (slots - 1)) != 0 || slots < kFewestSlots) return false;
    if (!blocks_.is_live(hashes) || size_of(hashes) < slots * kSlotBytes ||
        !space_.readable(hashes, slots * kSlotBytes))
      return false;
    uint32_t used = 0, occupied = 0;
    for (uint64_t i = 0; i < slots; ++i) {
      used += is_used(hashes, i);
      occupied += number(hashes + kSlotBytes * i) != 0;
    }
    return used != 0 && used == number(at_mask + 4) && occupied == number(at_mask + 8);
  }

  // There may be remains of a table elsewhere. Which one counts must not depend on the threads.
  void add(uint64_t block, uint64_t hashes, uint64_t mask) {
    if (!blocks_.is_live(block) || slots_of(block) != mask + 1) return;
    std::size_t array = index_of(block);
    if (array == kNone) return;
    SpinLock::Guard guard(lock_);
    uint64_t& known = arrays_[array].hashes;
    if (known == 0 || hashes < known) known = hashes;
  }

  const heaps::Space& space_;
  const BlockMap& blocks_;
  List<Array> arrays_;  // ascending
  SpinLock lock_;
};

}  // namespace reachscan::sweeper
