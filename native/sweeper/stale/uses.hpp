// How often words lead to blocks in the same way: from the same place in one kind of block to the
// same offset in another kind. Slices may begin anywhere in their page, so all places there count
// as the same (slices.hpp).
#pragma once

#include "sweeper/stale/kind_counts.hpp"
#include "sweeper/stale/slices.hpp"

namespace reachscan::sweeper {

// A word that leads into a block, but need not hold it.
struct Word {
  uint64_t slot;
  uint64_t owner;   // the block that contains it, 0 for a root
  uint64_t target;  // the block it points into
  uint64_t value;
};

class Uses {
 public:
  static constexpr std::size_t kMaxWords = 1 << 19;

  Uses(const BlockMap& blocks, const KindCounts& kinds)
      : blocks_(blocks), kinds_(kinds), slices_(blocks) {}

  // Called for at most kMaxWords words.
  void note(const Word& word) {
    uint64_t key = key_of(word);
    Use& use = use_of(key);
    if (use.key == 0) use = {key, word.target, 0, 0, false};
    ++use.words;
    use.targets |= 1ull << (mixed(word.target, 0) >> kShiftToBit);
    use.of_several = use.of_several || use.target != word.target;
  }

  uint32_t words_like(const Word& word) const { return use_of(key_of(word)).words; }
  bool lead_to_several(const Word& word) const { return use_of(key_of(word)).of_several; }
  // Returns whether they lead to at least kMany blocks; rarely, not for a few more.
  bool lead_to_many(const Word& word) const {
    uint64_t targets = use_of(key_of(word)).targets;
    for (unsigned i = 1; i < kMany; ++i) targets &= targets - 1;
    return targets != 0;
  }

 private:
  static constexpr unsigned kBits = 20;
  static constexpr std::size_t kUses = 1u << kBits;
  static constexpr unsigned kMany = 6, kShiftToBit = 64 - 6;
  static_assert(kMaxWords <= kUses / 2);

  struct Use {
    uint64_t key;  // 0: none
    uint64_t target;
    uint64_t targets;  // each sets a bit, some of them the same
    uint32_t words;
    bool of_several;
  };

  uint64_t key_of(const Word& word) const {
    uint64_t key = kinds_.kind_of(word.target);
    if (word.owner != 0 && slices_.is_page(word.owner)) {
      key = mixed(key, blocks_.end_of(word.owner) - word.owner);
    } else if (word.owner != 0) {
      key = mixed(mixed(key, kinds_.kind_of(word.owner)), word.slot - word.owner);
    }
    return mixed(key, word.value - word.target) | 1;
  }

  // Returns the row of the key, or a free one.
  Use& use_of(uint64_t key) const {
    uint64_t at = mixed(key, 0) >> (64 - kBits);
    while (uses_.get()[at].key != 0 && uses_.get()[at].key != key) at = (at + 1) % kUses;
    return uses_.get()[at];
  }

  const BlockMap& blocks_;
  const KindCounts& kinds_;
  const Slices slices_;
  mutable Scratch<Use> uses_{kUses};
};

}  // namespace reachscan::sweeper
