// Blocks that end with a text, and begin with its length (llvm::StringMapEntry and others):
//
//   length | a few words | characters, zero | what was there before
//
// The last was not requested, but added by rounding the size up.
#pragma once

#include "memory/rounding.hpp"
#include "sweeper/blocks/word_kinds.hpp"
#include "sweeper/mark/spin_lock.hpp"
#include "sweeper/mark/words.hpp"
#include "sweeper/search/stretches.hpp"

namespace reachscan::sweeper {

class SizedTexts {
 public:
  SizedTexts(const heaps::Space& space, const heaps::BlockMap& blocks)
      : space_(space), blocks_(blocks) {}

  // Searches marked blocks; of a large heap, samples.
  void find() {
    targets_ = heaps::List<uint64_t>(map_memory, kMaxTargets);
    auto look = [this](uint64_t start, uint64_t end) {
      // A piece includes the first word of the next one, where a block may start.
      blocks_.each_marked_in({start, end - heaps::kWord},
                             [this](uint64_t block) { add_targets(block); });
    };
    visit_heap(blocks_, look, kSampleBytes);
  }

  // Returns whether the word is behind such a text.
  bool end_before(uint64_t owner, uint64_t slot) const {
    uint64_t end = blocks_.end_of(owner);
    if (slot + kMostUnused < end) return false;
    uint64_t text_end = end_of_text({owner, end});
    return text_end != 0 && slot >= text_end;
  }

  bool found_any() const { return !targets_.empty(); }

  // Calls visit(block) for each block that such a word leads to, some of them repeatedly.
  template <typename Visit>
  void each_target(Visit visit) const {
    for (uint64_t block : targets_) visit(block);
  }

 private:
  static constexpr std::size_t kMaxTargets = 1 << 16;
  static constexpr uint64_t kMostUnused = heaps::rounding(0);  // bytes behind a text
  static constexpr uint64_t kFewestCharacters = 8;             // fewer may be an address
  static constexpr uint64_t kMostWordsBefore = 4;              // of the text

  void add_targets(uint64_t owner) {
    uint64_t end = blocks_.end_of(owner);
    each_word(space_, end - owner > kMostUnused ? end - kMostUnused : owner, end,
              [&](uint64_t slot, uint64_t value) {
                uint64_t target = blocks_.may_point(value) ? blocks_.block_of(value) : 0;
                if (target == 0 || !blocks_.is_marked(target) || !end_before(owner, slot)) return;
                SpinLock::Guard guard(lock_);
                targets_.push(target);
              });
  }

  // Returns 0 if the block ends with no such text.
  static uint64_t end_of_text(heaps::Range block) {
    uint64_t length = heaps::word(block.start), bytes = block.end - block.start;
    if (length < kFewestCharacters || length >= bytes) return 0;
    for (uint64_t words = 1; words <= kMostWordsBefore; ++words) {
      uint64_t start = words * heaps::kWord, end = start + length + 1;
      if (!heaps::may_hold_request(bytes, end)) continue;
      if (is_text(block.start + start, length)) return block.start + end;
    }
    return 0;
  }

  // Returns whether there are so many characters, and no more.
  static bool is_text(uint64_t start, uint64_t length) {
    for (uint64_t at = start; at < start + length; ++at)
      if (!is_printable(heaps::load<uint8_t>(at))) return false;
    return heaps::load<uint8_t>(start + length) == 0;
  }

  const heaps::Space& space_;
  const heaps::BlockMap& blocks_;
  heaps::List<uint64_t> targets_;
  SpinLock lock_;
};

}  // namespace reachscan::sweeper
