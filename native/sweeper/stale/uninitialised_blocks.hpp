// Small blocks of which only the first word was set, to a tag: variants without contents. The
// second word is still a link of a free list (stale_words.hpp), so the others are old, too:
//
//   number | link | ...
//
// After an address, words may well be set behind one that is not.
#pragma once

#include "sweeper/mark/words.hpp"
#include "sweeper/search/stretches.hpp"
#include "sweeper/stale/targets.hpp"

namespace reachscan::sweeper {

class UninitialisedBlocks {
 public:
  UninitialisedBlocks(const heaps::Space& space, const heaps::BlockMap& blocks, Targets& targets)
      : space_(space), blocks_(blocks), targets_(targets) {}

  // Searches marked blocks; of a large heap, samples.
  void find() {
    visit_marked_samples(blocks_, [this](uint64_t block) {
      heaps::Range words = uninitialised(block);
      each_word(space_, words.start, words.end,
                [this](uint64_t, uint64_t value) { targets_.add(value); });
    });
  }

  // Returns whether the word is in such a block, and has not been set.
  bool contain(uint64_t owner, uint64_t slot) const {
    return slot - owner < kMostBytes && uninitialised(owner).contains(slot);
  }

 private:
  // Parts of a larger block are often set later.
  static constexpr uint64_t kMostBytes = 8 * heaps::kWord;

  // Returns what follows the link, if there is one.
  heaps::Range uninitialised(uint64_t block) const {
    uint64_t end = blocks_.end_of(block), link = block + heaps::kWord;
    bool is_small = end - block > 2 * heaps::kWord && end - block <= kMostBytes;
    if (!is_small || !is_number(heaps::word(block)) || !blocks_.is_link(heaps::word(link)))
      return {0, 0};
    return {link + heaps::kWord, end};
  }

  bool is_number(uint64_t word) const { return word >> 32 == 0 && space_.find(word) == nullptr; }

  const heaps::Space& space_;
  const heaps::BlockMap& blocks_;
  Targets& targets_;
};

}  // namespace reachscan::sweeper
