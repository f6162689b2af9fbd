// Texts that std::string of libstdc++ has in itself (bits/basic_string.h).
//
//   address of the buffer | length, up to 15 | characters, zero, what was there before
//
// A short array begins alike, but its items are no characters. So does a node of a list in an array
// of such, behind the last words of the one before:
//
//   data | next or previous node | address of the node behind | null
//   data | ...
//
// Both nodes lead to data then, and the lowest byte of the second address is 0 by chance.
#pragma once

#include "sweeper/blocks/word_kinds.hpp"
#include "sweeper/search/range_filter.hpp"
#include "sweeper/search/stretches.hpp"
#include "sweeper/stale/targets.hpp"

namespace reachscan::sweeper {

class ShortStrings {
 public:
  ShortStrings(const heaps::Space& space, const heaps::BlockMap& blocks, Targets& targets)
      : space_(space), blocks_(blocks), targets_(targets) {}

  // Searches marked blocks; of a large heap, samples.
  void find() {
    const SelfFilter filter(blocks_.hulls(), kBuffer);
    auto look = [&](uint64_t start, uint64_t end) {
      each_word_that(space_, start, end, filter,
                     [this](uint64_t slot, uint64_t) { add_targets(slot); });
    };
    visit_heap(blocks_, look, kSampleBytes);
  }

  // Returns whether the word is in the buffer of such a string.
  bool contain(uint64_t owner, uint64_t slot) const {
    uint64_t end = blocks_.end_of(owner);
    for (uint64_t start = slot; start + kBytes > slot; start -= heaps::kWord) {
      if (start < owner + kBuffer) return false;
      if (start + kBytes > end) continue;
      if (heaps::word(start - kBuffer) == start && is_text(start)) return true;
    }
    return false;
  }

 private:
  static constexpr uint64_t kBuffer = 2 * heaps::kWord, kBytes = 16;

  // Returns whether the length ahead of the buffer is that of the text in it.
  bool is_text(uint64_t start) const {
    uint64_t length = heaps::word(start - heaps::kWord);
    if (length >= kBytes || heaps::load<uint8_t>(start + length) != 0) return false;
    if (length == 0 && is_node(start)) return false;
    for (uint64_t at = start; at < start + length; ++at)
      if (!is_printable(heaps::load<uint8_t>(at))) return false;
    return true;
  }

  // Returns whether words lead to data here and four words ahead.
  bool is_node(uint64_t start) const {
    constexpr uint64_t kNode = 4 * heaps::kWord;
    return blocks_.is_live(heaps::word(start)) && blocks_.block_of(start - kNode) != 0 &&
           blocks_.block_of(heaps::word(start - kNode)) != 0;
  }

  void add_targets(uint64_t string) {
    uint64_t owner = blocks_.block_of(string), start = string + kBuffer;
    if (owner == 0 || !blocks_.is_marked(owner) || start + kBytes > blocks_.end_of(owner)) return;
    if (is_text(start)) targets_.add_unused(owner, {start, start + kBytes});
  }

  const heaps::Space& space_;
  const heaps::BlockMap& blocks_;
  Targets& targets_;
};

}  // namespace reachscan::sweeper
