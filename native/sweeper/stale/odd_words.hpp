// Words in reused memory that point into a block, but not to the start of a word in it.
//
// Some are intentional: a pointer to the text after the header of a block. Others were pointers to
// something else until a tag or the end of a text overwrote their lower bytes. Intentional ones
// have the same distance from the starts of their blocks, and these blocks are anywhere;
// overwritten ones have, if anything, the overwritten byte in common. A pointer to the start with a
// tag in its lowest bits is common, even if it is the only one (the nodes of tsearch(3)'s trees
// have them), so that byte must be far more frequent. Variables and stacks are not overwritten like
// that, so odd words there are intentional, unless the heap is below 4 GiB, where a number or a few
// characters may be an address by chance.
#pragma once

#include "sweeper/blocks/word_kinds.hpp"
#include "sweeper/mark/scratch.hpp"
#include "sweeper/mark/spin_lock.hpp"
#include "sweeper/mark/words.hpp"
#include "sweeper/roots/roots.hpp"
#include "sweeper/search/range_filter.hpp"
#include "sweeper/search/stretches.hpp"

namespace reachscan::sweeper {

class OddWords {
 public:
  OddWords(const heaps::Space& space, const BlockMap& blocks) : space_(space), blocks_(blocks) {}

  static bool is_odd(uint64_t value) { return value % heaps::kWord != 0; }

  // In a 32-bit program, any address is as short as a number.
  static bool may_be_number(uint64_t value) { return heaps::kWord == 8 && value >> 32 == 0; }

  // Returns whether a text fills the word before this one and ends in this one, whose upper bytes
  // it has not overwritten.
  static bool ends_text(uint64_t owner, uint64_t slot, uint64_t value) {
    constexpr int kMostCharacters = 4;  // an address has no more bytes below its upper ones
    if (slot - owner < heaps::kWord || !is_text_word(heaps::word(slot - heaps::kWord)))
      return false;
    if (heaps::word(slot - heaps::kWord) >> (8 * heaps::kWord - 8) == 0) return false;
    int characters = 0;
    for (; is_printable(value & 0xff); value >>= 8) ++characters;
    return characters <= kMostCharacters && (value & 0xff) == 0;
  }

  // Searches roots and marked blocks; of a large heap, samples.
  void find(Roots& roots) {
    targets_ = List<uint64_t>(map_memory, kMaxTargets);
    const OddFilter filter(blocks_.hulls());
    roots.each_part([&](uint64_t start, uint64_t end) {
      each_word_that(space_, start, end, filter, [&](uint64_t slot, uint64_t value) {
        add(value, roots.is_recycled(slot) || may_be_number(value));
      });
    });
    auto look = [&](uint64_t start, uint64_t end) {
      each_word_that(space_, start, end, filter, [&](uint64_t slot, uint64_t value) {
        uint64_t owner = blocks_.block_of(slot);
        if (owner != 0 && blocks_.is_marked(owner)) add(value, true);
      });
    };
    visit_heap(blocks_, look, kSampleBytes);
    heaps::sort(targets_);
  }

  // Returns whether an odd word that points into the block was probably meant for something else.
  bool is_stale(uint64_t target, uint64_t value) const {
    uint64_t distance = value - target, like_it = low_bytes_[value % kLowBytes];
    if (distance < heaps::kWord) return kLowBytesPerTag * distances_[distance] < like_it;
    return distance >= kDistances || distances_[distance] <= like_it;
  }

  bool found_any() const { return !targets_.empty(); }

  // Calls visit(block) for each block that such a word points into, some of them repeatedly.
  template <typename Visit>
  void each_target(Visit visit) const {
    for (uint64_t value : targets_) {
      uint64_t target = blocks_.block_of(value);
      if (is_stale(target, value)) visit(target);
    }
  }

 private:
  static constexpr std::size_t kMaxTargets = 1 << 18;
  static constexpr uint64_t kDistances = 4096;  // no header is larger
  static constexpr uint64_t kLowBytes = 256;
  static constexpr uint64_t kLowBytesPerTag = 8;  // that show a tag to be an overwritten byte

  void add(uint64_t value, bool may_be_stale) {
    uint64_t target = blocks_.block_of(value);
    if (target == 0 || !blocks_.is_marked(target)) return;
    SpinLock::Guard guard(lock_);
    if (value - target < kDistances) ++distances_[value - target];
    ++low_bytes_[value % kLowBytes];
    // When there is no room for more, the remaining words keep their targets alive.
    if (may_be_stale) targets_.push(value);
  }

  const heaps::Space& space_;
  const BlockMap& blocks_;
  List<uint64_t> targets_;
  Scratch<uint32_t> distances_{kDistances};
  uint32_t low_bytes_[kLowBytes] = {};
  SpinLock lock_;
};

}  // namespace reachscan::sweeper
