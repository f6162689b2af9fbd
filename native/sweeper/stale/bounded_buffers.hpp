// Large blocks that begin with the start and the end of what they hold (llvm::MemoryBuffer):
//
//   a word | start | end | name | contents | what was there before
//
// The last was not requested, but added by rounding the size up.
#pragma once

#include "memory/rounding.hpp"
#include "sweeper/mark/words.hpp"
#include "sweeper/search/stretches.hpp"
#include "sweeper/stale/targets.hpp"

namespace reachscan::sweeper {

class BoundedBuffers {
 public:
  BoundedBuffers(const heaps::Space& space, const heaps::BlockMap& blocks, Targets& targets)
      : space_(space), blocks_(blocks), targets_(targets) {}

  // Searches marked blocks; of a large heap, samples.
  void find() {
    visit_marked_samples(blocks_, [this](uint64_t block) {
      heaps::Range rest = unused({block, blocks_.end_of(block)});
      each_word(space_, rest.start, rest.end,
                [this](uint64_t, uint64_t value) { targets_.add(value); });
    });
  }

  // Returns whether the word is behind the contents.
  bool end_before(uint64_t owner, uint64_t slot) const {
    return slot - owner >= kLeastBytes && unused({owner, blocks_.end_of(owner)}).contains(slot);
  }

 private:
  // In smaller objects, other fields may follow a part with contents.
  static constexpr uint64_t kLeastBytes = 512;
  static constexpr uint64_t kMostBefore = 256;  // the contents

  // Returns the words behind the contents, if the block begins like that.
  static heaps::Range unused(heaps::Range block) {
    if (block.end - block.start <= kLeastBytes) return {0, 0};
    uint64_t start = heaps::word(block.start + heaps::kWord);
    uint64_t end = heaps::word(block.start + 2 * heaps::kWord);
    bool is_buffer = start > block.start && start - block.start <= kMostBefore && end > start &&
                     heaps::may_hold_request(block.end - block.start, end - block.start);
    if (!is_buffer) return {0, 0};
    return {heaps::align_up(end, heaps::kWord), block.end};
  }

  const heaps::Space& space_;
  const heaps::BlockMap& blocks_;
  Targets& targets_;
};

}  // namespace reachscan::sweeper
