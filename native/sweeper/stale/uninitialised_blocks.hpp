// Small blocks of which only the first word was set, to a tag, or a part of it, to a character or
// two: variants without contents, and short texts. The second word is still a link of a free list
// (stale_words.hpp), so the others are old, too:
//
//   number | link | ...
//   a link, partly overwritten | link | ...
//
// After an address, words may well be set behind one that is not.
#pragma once

#include "sweeper/stale/links.hpp"
#include "sweeper/stale/targets.hpp"

namespace reachscan::sweeper {

class UninitialisedBlocks {
 public:
  UninitialisedBlocks(const heaps::Space& space, const heaps::BlockMap& blocks, Targets& targets)
      : space_(space), blocks_(blocks), links_(space, blocks), targets_(targets) {}

  // Adds what the words of a marked block that were not set lead to. Thread-safe.
  void look_at(heaps::Range block) { targets_.add_unused(block.start, uninitialised(block)); }

  // Returns whether the word is in such a block, and has not been set.
  bool contain(uint64_t owner, uint64_t slot) const {
    return slot - owner < kMostBytes && uninitialised(blocks_.range_of(owner)).contains(slot);
  }

 private:
  // Parts of a larger block are often set later.
  static constexpr uint64_t kMostBytes = 8 * heaps::kWord;

  // Returns what follows the link, if there is one.
  heaps::Range uninitialised(heaps::Range block) const {
    const uint64_t link = block.start + heaps::kWord, bytes = block.end - block.start;
    if (bytes <= 2 * heaps::kWord || bytes > kMostBytes) return {0, 0};
    uint64_t first = heaps::word(block.start), second = heaps::word(link);
    bool is_unset = is_number(first) ? blocks_.is_link(second) || links_.is_bin(second)
                                     : is_overwritten(first, second) && links_.is_bin(second);
    return is_unset ? heaps::Range{link + heaps::kWord, block.end} : heaps::Range{0, 0};
  }

  // Returns whether the first word was such an address, too, before its lowest bytes were set.
  bool is_overwritten(uint64_t first, uint64_t second) const {
    constexpr unsigned kBitsSet = 16;
    return first >> kBitsSet == second >> kBitsSet && !links_.is_bin(first);
  }

  bool is_number(uint64_t word) const { return word >> 32 == 0 && space_.find(word) == nullptr; }

  const heaps::Space& space_;
  const heaps::BlockMap& blocks_;
  Links links_;
  Targets& targets_;
};

}  // namespace reachscan::sweeper
