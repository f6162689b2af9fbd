// One search for live blocks that are held only by words that look stale (lookalikes.hpp).
//
// Blocks of kinds that are leaked are in question, and those that words lead to which need not hold
// anything. Words are noted that may be stale; all others mark what they lead to. Then the noted
// words are judged by what others like them do, and what is left is in doubt.
#pragma once

#include <optional>

#include "sweeper/stale/descendants.hpp"
#include "sweeper/stale/kind_counts.hpp"
#include "sweeper/stale/last_words.hpp"
#include "sweeper/stale/object_arrays.hpp"
#include "sweeper/stale/odd_targets.hpp"
#include "sweeper/stale/places.hpp"
#include "sweeper/stale/spare_parts.hpp"
#include "sweeper/stale/stale_words.hpp"
#include "sweeper/stale/uses.hpp"
#include "sweeper/stale/webs.hpp"

namespace reachscan::sweeper {

class LookalikeSearch {
 public:
  // In a second search, what the first one put in doubt counts as leaked. That is weaker evidence,
  // so only kinds of which most are lost are judged by it, and two sorts of words that lead there:
  // into the middle of such blocks, from places where blocks like the owner, leaked or not, have
  // words into blocks of other sizes; and to the start of objects of a class, from places where
  // words look stale.
  //
  // Blocks in `in_use`, sorted by address, are never in question.
  LookalikeSearch(const heaps::Space& space, BlockMap& blocks, const StaleWords& stale_words,
                  const List<uint64_t>& in_use, bool is_first)
      : space_(space),
        blocks_(blocks),
        stale_words_(stale_words),
        in_use_(in_use),
        is_first_(is_first),
        kinds_(space, blocks),
        odd_targets_(space, blocks),
        last_words_(space, blocks),
        places_(blocks, kinds_),
        spare_parts_(space, blocks),
        below_(space, blocks),
        uses_(blocks, kinds_) {}

  // Unmarks every block in doubt. Everything reachable is marked, unless it is in doubt.
  void run(Roots& roots) {
    find_blocks();
    if (is_first_) find_odd_targets();  // whatever is leaked, these are the same
    for (uint64_t block : in_question_) blocks_.clear_mark(block);
    below_.add(in_question_);
    if (is_first_) below_.add(leaked_);
    if (in_question_.empty() && below_.empty()) return;
    words_ = List<Word>(map_memory, Uses::kMaxWords);
    if (find_words(roots)) {
      last_words_.count();
      spare_parts_.find(roots);
      places_.count([this](uint64_t block) {
        return !is_first_ || blocks_.is_marked(block) || is_in_question(block);
      });
      mark_held_blocks();
      mark_unless_few();
      mark_strange_webs();
    } else {
      restore_all_marks();
    }
  }

  // Calls visit(block) for each block that run() left unmarked.
  template <typename Visit>
  void each_in_doubt(Visit visit) const {
    for (uint64_t block : in_question_)
      if (!blocks_.is_marked(block)) visit(block);
    below_.each_unmarked(visit);
  }

  // Returns whether run() has unmarked it, if only for a while.
  bool is_in_question(uint64_t block) const {
    return is_in(in_question_, block) || below_.has(block);
  }

  // Calls visit(word) for each word in memory in use that leads to a block in doubt.
  template <typename Visit>
  void each_stale_word(Visit visit) const {
    for (const Word& word : words_)
      if (!blocks_.is_marked(word.target) && (word.owner == 0 || blocks_.is_marked(word.owner)))
        visit(word);
  }

 private:
  static constexpr std::size_t kMaxBlocks = 1 << 18;
  // If there are more, only kinds that are often leaked are examined: all would take too long.
  static constexpr std::size_t kMaxRareBlocks = 1 << 14;
  static constexpr uint32_t kMinUses = 3;  // fewer show no intention
  // In a larger structure, not more blocks may be of kinds that are not leaked elsewhere.
  static constexpr std::size_t kLargeWeb = 64, kOneInStrange = 3;

  // Finds live blocks of kinds that are often leaked; none if there are too many.
  void find_blocks() {
    in_question_ = List<uint64_t>(map_memory, kMaxBlocks);
    open_ = List<uint64_t>(map_memory, kMaxBlocks + Descendants::kMaxBlocks);
    leaked_ = List<uint64_t>(map_memory, kMaxBlocks);
    blocks_.each_unmarked([this](uint64_t block) {
      kinds_.add_leaked(block);
      leaked_.push(block);
    });
    bool all = true;
    kinds_.count_live([&](uint64_t block) {
      SpinLock::Guard guard(lock_);
      all = in_question_.push(block) && all;
      // The counts also tell what is to be thought of the targets of odd words.
      return all || stale_words_.found_any();
    });
    bool few = in_question_.size() <= kMaxRareBlocks;
    std::size_t kept = 0;
    for (uint64_t block : in_question_) {
      bool may_be = few || !is_first_ ? is_like_leaked(block) : kinds_.is_often_leaked(block);
      if (all && may_be && !is_in(in_use_, block)) in_question_[kept++] = block;
    }
    while (in_question_.size() > kept) in_question_.pop();
    heaps::sort(in_question_);
  }

  bool is_like_leaked(uint64_t block) const {
    if (!is_first_) return kinds_.is_mostly_leaked(block);
    return kinds_.is_sometimes_leaked(block) || kinds_.is_sometimes_leaked_by_size(block);
  }
  bool is_alike_only_in_size(uint64_t block) const {
    return !kinds_.is_sometimes_leaked(block) && !odd_targets_.has(block);
  }

  // Adds what words that need not hold anything lead to, and sorts the list.
  void find_odd_targets() {
    stale_words_.each_target_of_odd([this](uint64_t block) { odd_targets_.add(block); });
    for (uint64_t block : stale_words_.targets_of_others())
      if (!odd_targets_.add(block) && !is_in(in_question_, block)) odd_targets_.add_alone(block);
    odd_targets_.sort();
    for (uint64_t block : odd_targets_.blocks())
      if (!in_question_.push(block)) break;
    heaps::sort(in_question_);
    heaps::remove_repeats(in_question_);
  }

  // Restores all marks that run() has removed.
  void restore_all_marks() {
    for (uint64_t block : in_question_) blocks_.mark(block);
    below_.restore_marks();
  }

  // Marks blocks that roots lead to and that other blocks hold at their start. Notes words that
  // lead elsewhere into blocks in question. Returns false if there are too many.
  bool find_words(Roots& roots) {
    bool all = true;
    auto hold = [&](uint64_t, uint64_t value) {
      if (target_in_question(value) != 0) blocks_.mark(value);
    };
    auto hold_by_root = [&](uint64_t slot, uint64_t value) {
      uint64_t target = target_in_question(value);
      bool is_doubtful = roots.is_recycled(slot) || OddWords::may_be_number(value);
      if (target != 0 && is_doubtful && may_be_stale({slot, 0, target, value})) {
        all = words_.push({slot, 0, target, value}) && all;
      } else {
        hold(slot, value);
      }
    };
    const RangeFilter filter(below_.hull(in_question_));
    roots.each_part([&](uint64_t start, uint64_t end) {
      each_word_that(space_, start, end, filter, hold_by_root);
    });
    roots.each_unaligned_word(hold);
    roots.each_register_word(hold);
    visit_heap(blocks_, [&](uint64_t start, uint64_t end) {
      std::optional<LeftBehind> owner;
      each_word_that(space_, start, end, filter, [&](uint64_t slot, uint64_t value) {
        if (!hold_or_note(slot, value, owner)) __atomic_store_n(&all, false, __ATOMIC_RELAXED);
      });
    });
    // Threads add them in any order, and webs may overlap.
    heaps::sort(words_, [](const Word& a, const Word& b) { return a.slot < b.slot; });
    return all;
  }

  // Marks what a word of a block leads to, or notes the word if it need not hold that. Returns
  // false if there are too many. Keeps what it learns of the owner for the next word.
  bool hold_or_note(uint64_t slot, uint64_t value, std::optional<LeftBehind>& last_owner) {
    uint64_t target = target_in_question(value), owner = blocks_.block_of(slot);
    if (target == 0 || owner == 0) return true;
    if (!last_owner || last_owner->block() != owner) last_owner.emplace(blocks_, owner);
    if (last_owner->has(slot, value)) return true;
    bool is_from_outside = !is_in_question(owner);
    if (is_from_outside && !blocks_.is_marked(owner)) return true;
    const Word word{slot, owner, target, value};
    bool may_be_spare = spare_parts_.may_be_in(owner) && words_.size() < Uses::kMaxWords / 2;
    bool is_doubtful = may_be_stale(word);
    if (!is_doubtful && !may_be_spare) {
      if (is_from_outside) blocks_.mark<true>(target);
      return true;
    }
    SpinLock::Guard guard(lock_);
    if (may_be_spare) spare_parts_.ask(owner);
    if (is_doubtful) {
      if (is_last(word)) last_words_.ask(owner);
      places_.ask(owner, slot);
    }
    return words_.push(word);
  }

  // Returns whether a word in another block need not hold what it leads to.
  bool may_be_stale(const Word& word) const {
    if (stale_words_.is_unused(word) || stale_words_.is_link(word)) return true;
    if (odd_targets_.is_alone(word.target) || leads_to_array(blocks_, word)) return false;
    return word.value == word.target ? may_be_stale_at_start(word) : may_be_stale_inside(word);
  }

  bool may_be_stale_at_start(const Word& word) const {
    if (word.owner == 0 || (is_first_ && below_.has(word.target))) return false;
    bool is_telling = is_first_ ? is_last(word) : kinds_.is_object(word.target);
    bool may_be = (is_telling && is_like_leaked(word.target)) ||
                  (is_first_ && kinds_.is_often_leaked(word.target));
    return may_be && !stale_words_.is_in_item(word);
  }

  bool may_be_stale_inside(const Word& word) const {
    if (!is_first_) return word.owner != 0 && is_like_leaked(word.target);
    if (below_.has(word.target)) return is_last(word);
    return stale_words_.is_odd(word) || is_like_leaked(word.target);
  }

  bool is_last(const Word& word) const {
    return word.owner != 0 && last_words_.is_last(word.owner, word.slot);
  }

  // Returns 0 if the value points to none. Marked descendants need no more words.
  uint64_t target_in_question(uint64_t value) const {
    uint64_t block = blocks_.block_of(value);
    if (block == 0) return 0;
    bool is = is_in(in_question_, block) || (!blocks_.is_marked(block) && below_.has(block));
    return is ? block : 0;
  }

  bool is_usual(const Word& word) const {
    if (stale_words_.is_unused(word) || spare_parts_.contain(word.owner, word.slot)) return false;
    if (!may_be_stale(word)) return true;
    if (is_first_ && stale_words_.is_odd(word)) return false;
    if (word.owner == 0) return uses_.lead_to_several(word);
    if (is_last(word)) {
      bool is_below = below_.has(word.target);
      if (!last_words_.are_fields(word.owner, word.value != word.target))
        return is_below ? uses_.lead_to_several(word) : uses_.lead_to_many(word);
      if (!is_like_leaked(word.target)) return true;
    }
    return word.value == word.target ? is_usual_to_start(word) : is_usual_inside(word);
  }

  bool is_usual_to_start(const Word& word) const {
    if (!is_first_) return !places_.look_stale(word.owner, word.slot);
    if (places_.has_dangling(word.owner, word.slot)) return false;
    return uses_.words_like(word) >= kMinUses || places_.is_field(word.owner, word.slot);
  }

  bool is_usual_inside(const Word& word) const {
    if (places_.has_dangling(word.owner, word.slot)) return false;
    if (uses_.lead_to_several(word)) return true;
    return !is_first_ && !places_.leads_into_several(word.owner, word.slot);
  }

  void mark_held_blocks() {
    for (const Word& word : words_)
      if (!stale_words_.is_unused(word) && !stale_words_.is_odd(word)) uses_.note(word);
    for (uint64_t block : in_question_)
      if (blocks_.is_marked(block)) open_.push(block);
    below_.each_marked([this](uint64_t block) { open_.push(block); });
    take_usual_targets();
    spread();
  }

  void take_usual_targets() {
    for (const Word& word : words_)
      if ((word.owner == 0 || blocks_.is_marked(word.owner)) && is_usual(word)) take(word.target);
  }

  void take(uint64_t block) {
    if (blocks_.mark(block) != 0) open_.push(block);
  }

  // Calls visit(word) for the words of a block that lead to blocks in doubt.
  template <typename Visit>
  void each_word_into_doubt(uint64_t owner, Visit visit) const {
    const LeftBehind left_behind(blocks_, owner);
    each_word(space_, owner, blocks_.end_of(owner), [&](uint64_t slot, uint64_t value) {
      uint64_t target = blocks_.block_of(value);
      if (target == 0 || blocks_.is_marked(target) || !is_in_question(target)) return;
      if (!left_behind.has(slot, value)) visit(Word{slot, owner, target, value});
    });
  }

  // Marks what normally held blocks hold in the same way.
  void spread() {
    bool found_use = false;
    while (!open_.empty()) {
      uint64_t owner = open_.pop();
      found_use = spare_parts_.find_use_by(owner) || found_use;
      each_word_into_doubt(owner, [this](const Word& word) {
        if (is_usual(word)) take(word.target);
      });
      if (!open_.empty() || !found_use) continue;
      found_use = false;
      take_usual_targets();
    }
  }

  // Counts, by kind, the blocks in doubt that stale words lead to from memory in use. Where there
  // are too many, marks them, except the targets of odd words and of those in spare parts.
  void mark_unless_few() {
    if (words_.empty()) return;  // no memory can be requested for an empty list
    List<uint64_t> heads(map_memory, words_.size());
    each_stale_word([&](const Word& word) {
      if (!odd_targets_.has(word.target) && !below_.has(word.target)) heads.push(word.target);
    });
    for (uint64_t block : heads)
      if (blocks_.mark(block) != 0) kinds_.add_odd(block);
    for (uint64_t block : heads) blocks_.clear_mark(block);
    for (uint64_t block : heads)
      if (!kinds_.few_are_odd(block)) take(block);
    spread();
  }

  // Marks large structures in doubt, without their heads, unless most of their blocks are of kinds
  // that are leaked elsewhere. A strange head is marked with what it leads to, however little that
  // is.
  void mark_strange_webs() {
    if (words_.empty()) return;
    List<uint64_t> doubtful(map_memory, in_question_.size() + Descendants::kMaxBlocks);
    each_in_doubt([&](uint64_t block) { doubtful.push(block); });
    if (doubtful.empty()) return;
    heaps::sort(doubtful);
    const List<uint64_t> strange_heads = find_strange_heads();
    Webs webs(doubtful);
    each_stale_word([&](const Word& word) {
      webs.add(word.target, [&](uint64_t block) {
        bool is_strange =
            block == word.target ? is_in(strange_heads, block) : !kinds_.is_sometimes_leaked(block);
        if (is_strange) webs.count_strange();
        each_word_into_doubt(block, [&](const Word& next) { webs.enter(next.target); });
      });
    });
    webs.each(
        [&](const uint64_t* web, const uint64_t* end, std::size_t blocks, std::size_t strange) {
          bool is_head_strange = is_in(strange_heads, *web);
          if (below_.has(*web) || strange * kOneInStrange <= blocks) return;
          if (blocks <= kLargeWeb && !is_head_strange) return;
          for (web += is_head_strange ? 0 : 1; web != end; ++web) take(*web);
        });
    spread();
  }

  // Returns the heads that are like leaked blocks only in size, unless all words that lead to them
  // are links of free lists or in spare parts.
  List<uint64_t> find_strange_heads() const {
    List<uint64_t> heads(map_memory, words_.size());
    each_stale_word([&](const Word& word) {
      if (!is_alike_only_in_size(word.target)) return;
      bool is_sure = stale_words_.is_link(word) || spare_parts_.contain(word.owner, word.slot);
      if (!is_sure) heads.push(word.target);
    });
    heaps::sort(heads);
    return heads;
  }

  const heaps::Space& space_;
  BlockMap& blocks_;
  const StaleWords& stale_words_;
  const List<uint64_t>& in_use_;
  bool is_first_;
  KindCounts kinds_;
  OddTargets odd_targets_;  // all of them are also in question
  LastWords last_words_;
  Places places_;
  SpareParts spare_parts_;
  List<uint64_t> leaked_;       // if there are too many, only some of them
  List<uint64_t> in_question_;  // sorted by address
  List<uint64_t> open_;         // marked again, but not yet scanned
  List<Word> words_;
  Descendants below_;
  Uses uses_;
  SpinLock lock_;
};

}  // namespace reachscan::sweeper
