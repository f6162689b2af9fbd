// Words that need not hold anything, whatever blocks are leaked: odd words that were probably
// partly overwritten (odd_words.hpp), links of free lists (links.hpp), and words that their owners
// give no meaning (unused_words.hpp).
#pragma once

#include "sweeper/mark/ignored_words.hpp"
#include "sweeper/stale/links.hpp"
#include "sweeper/stale/odd_words.hpp"
#include "sweeper/stale/targets.hpp"
#include "sweeper/stale/unused_words.hpp"
#include "sweeper/stale/uses.hpp"

namespace reachscan::sweeper {

class StaleWords {
 public:
  StaleWords(const heaps::Space& space, const BlockMap& blocks)
      : blocks_(blocks),
        links_(space, blocks),
        odd_words_(space, blocks),
        targets_(space, blocks),
        unused_words_(space, blocks, targets_) {}

  // Searches marked blocks, and roots; of a large heap, samples.
  void find(Roots& roots) {
    odd_words_.find(roots);
    find_links();
    unused_words_.find(roots);
    targets_.sort();
  }

  bool found_any() const { return odd_words_.found_any() || !targets_.empty(); }

  // Calls visit(block) for each block that odd words lead to, some of them repeatedly.
  template <typename Visit>
  void each_target_of_odd(Visit visit) const {
    odd_words_.each_target(visit);
  }
  // What the others lead to, sorted by address.
  const List<uint64_t>& targets_of_others() const { return targets_.blocks(); }

  // Unused words that hold nothing wherever they lead.
  bool has_unused() const { return targets_.has_owners(); }
  IgnoredWords unused() const {
    return {this,
            [](const void* self, uint64_t block) {
              return static_cast<const StaleWords*>(self)->targets_.may_be_owner(block);
            },
            [](const void* self, uint64_t block, uint64_t slot) {
              const auto& words = static_cast<const StaleWords*>(self)->unused_words_;
              return words.are_outside_contents(block, slot);
            }};
  }

  bool is_odd(const Word& word) const {
    return OddWords::is_odd(word.value) && odd_words_.is_stale(word.target, word.value);
  }
  bool is_link(const Word& word) const { return links_.has(word); }
  bool is_unused(const Word& word) const { return unused_words_.has(word); }
  bool is_in_item(const Word& word) const { return unused_words_.is_in_item(word); }

 private:
  // A word that was added to a block by rounding its size up may still be a link.
  void find_links() {
    visit_marked_samples(blocks_, [this](heaps::Range block) {
      uint64_t value = heaps::word(block.end - heaps::kWord);
      targets_.add_if(
          value, [&] { return blocks_.is_link(value) && blocks_.ends_at(block.start, block.end); });
    });
  }

  const BlockMap& blocks_;
  Links links_;
  OddWords odd_words_;
  Targets targets_;  // of links and unused words
  UnusedWords unused_words_;
};

}  // namespace reachscan::sweeper
