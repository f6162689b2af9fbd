// Blocks that end with a text, and begin with its length (llvm::StringMapEntry and others):
//
//   length | a few words | characters, zero | what was there before
//
// The last was not requested, but added by rounding the size up.
#pragma once

#include "memory/rounding.hpp"
#include "sweeper/blocks/word_kinds.hpp"
#include "sweeper/stale/targets.hpp"

namespace reachscan::sweeper {

class SizedTexts {
 public:
  SizedTexts(const heaps::BlockMap& blocks, Targets& targets)
      : blocks_(blocks), targets_(targets) {}

  // Adds what the words behind the text of a marked block lead to. Thread-safe.
  void look_at(heaps::Range block) {
    uint64_t text_end = end_of_text(block);
    if (text_end != 0) targets_.add_unused(block.start, {text_end, block.end});
  }

  // Returns whether the word is behind such a text.
  bool end_before(uint64_t owner, uint64_t slot) const {
    uint64_t end = blocks_.end_of(owner);
    if (slot + heaps::rounding(0) < end) return false;
    uint64_t text_end = end_of_text({owner, end});
    return text_end != 0 && slot >= text_end;
  }

 private:
  static constexpr uint64_t kFewestCharacters = 8;  // fewer may be an address
  static constexpr uint64_t kMostWordsBefore = 4;   // of the text

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

  const heaps::BlockMap& blocks_;
  Targets& targets_;
};

}  // namespace reachscan::sweeper
