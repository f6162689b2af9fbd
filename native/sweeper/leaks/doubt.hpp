// A second look at what the program can reach, for words that mean a leak candidate in another
// form. Blocks that only such words mean, and their descendants, count as in use if the form leaves
// no doubt, and otherwise as possible leaks. So do blocks that may be an alternate signal stack.
#pragma once

#include <new>

#include "sweeper/leaks/collect.hpp"
#include "sweeper/leaks/suspects.hpp"
#include "sweeper/mark/lua_arrays.hpp"
#include "sweeper/mark/put_aside.hpp"
#include "sweeper/mark/spin_lock.hpp"
#include "sweeper/meanings/meanings.hpp"
#include "sweeper/roots/mark_reachable.hpp"
#include "sweeper/roots/roots.hpp"
#include "sweeper/roots/signal_stacks.hpp"
#include "sweeper/stale/lookalikes.hpp"

namespace reachscan::sweeper {

class DoubtPass {
 public:
  DoubtPass(const heaps::Space& space, BlockMap& blocks, std::size_t unmarked)
      : space_(space),
        blocks_(blocks),
        unmarked_(unmarked),
        candidates_(blocks, unmarked),
        meanings_(space, blocks, candidates_),
        open_(map_memory, unmarked) {
    for (uint32_t rank = 1; rank < kRankCount; ++rank)
      doubtful_[rank] = List<uint64_t>(map_memory, unmarked);
  }

  // Marks, temporarily, the blocks that words other than pointers prove to be in use, and their
  // descendants. Returns these, sorted by address.
  List<uint64_t> mark_blocks_in_use(Roots& roots) {
    search(roots);
    settle(kInUse);
    std::size_t count = unmarked_ - count_unmarked(blocks_);
    if (count == 0) return {};
    List<uint64_t> marked(map_memory, count);
    candidates_.each([&](uint64_t block) {
      if (blocks_.is_marked(block)) marked.push(block);
    });
    return marked;
  }
  void unmark_all() {
    candidates_.each([this](uint64_t block) { blocks_.clear_mark(block); });
  }

  // Returns whether it is about all blocks that are unmarked now, given that those that were
  // unmarked when it began still are.
  bool is_about_all_unmarked() const { return count_unmarked(blocks_) == unmarked_; }

  // Where the words are that lead to these blocks now does not matter.
  void suggest_lost_before(const List<uint64_t>& found) {
    for (uint64_t block : found)
      suggest(block, {0, block, 0, wire::kLostBefore, rank_of(wire::kLostBefore), 0});
  }

  // Searches everything reachable, and the unreachable blocks.
  void look(Roots& roots, const DeferredWords& put_aside, const Lookalikes& lookalikes) {
    lookalikes_ = &lookalikes;
    put_aside.each_unmarked([this](uint64_t block, uint64_t value) {
      suggest(block, stale_word(0, value, Sighting::kSomewhere));
    });
    lookalikes.each_stale_word(
        [this](const Word& word) { suggest(word.target, stale_word(word.slot, word.value)); });
    roots.each_unclear_word(
        [this](uint64_t slot, uint64_t value) { suggest_left_over(stale_word(slot, value)); });
    roots.each_scratch_word([this](uint64_t index, uint64_t value) {
      suggest_left_over(stale_word(0, value, static_cast<uint32_t>(index)));
    });
    search(roots);
    for (uint32_t rank = 0; rank < kRankCount; ++rank) settle(rank);
    SignalStacks stacks(space_, blocks_, unmarked_);
    stacks.each(threads_with_unknown_signal_stack(),
                [this](uint64_t block) { take(candidates_.find(block), kRankCount - 1); });
    spread(kRankCount - 1);
  }

  // Sends certain leaks first, then the others with the reasons for doubt.
  void collect(LeakWriter& writer) {
    collect_leaks(space_, blocks_, writer);
    for (uint32_t rank = 1; rank < kRankCount; ++rank) {
      if (doubtful_[rank].empty()) continue;
      for (uint64_t block : doubtful_[rank]) blocks_.clear_mark(block);
      auto first = static_cast<uint32_t>(writer.leaks.blocks);
      collect_leaks(space_, blocks_, writer);
      auto count = static_cast<uint32_t>(writer.leaks.blocks) - first;
      Record(wire::kDoubts).u32(1).u32(first).u32(count).u32(kRanks[rank]).send();
    }
  }

  // Returns whether no word, in any form, proves that the block is in use.
  bool is_lost(uint64_t block) const {
    if (candidates_.find(block) == Candidates::kNone) return false;
    const Sighting* seen = sighting(block);
    return seen == nullptr || seen->rank != kInUse;
  }

  // Returns the word that makes a block count as in use or doubtful, null if there is none.
  const Sighting* sighting(uint64_t block) const {
    uint32_t candidate = candidates_.find(block);
    return candidate != Candidates::kNone ? candidates_.sighting(candidate) : nullptr;
  }

  uint64_t meant_by(const Sighting& sighting) const { return candidates_.block(sighting.about); }

 private:
  // Words whose meaning depends on others.
  struct Notes {
    static constexpr std::size_t kMost = 1 << 20;

    List<uint64_t> words{map_memory, kMost};
    bool are_all = true;
  };

  static Sighting stale_word(uint64_t slot, uint64_t value, uint32_t index = 0) {
    return {slot, value, index, wire::kStaleWord, rank_of(wire::kStaleWord), 0};
  }

  // A packed structure may hold a block by an unaligned pointer alone. If aligned words that look
  // stale lead to the block, the unaligned one in reused memory is probably stale, too.
  Sighting found_in_block(uint64_t block, Sighting sighting) const {
    bool is_stale = sighting.form == wire::kUnaligned && lookalikes_ != nullptr &&
                    lookalikes_->put_in_doubt(block);
    return is_stale ? stale_word(sighting.slot, sighting.value) : sighting;
  }

  // A thread that is currently running on a block has no other alternate stack.
  std::size_t threads_with_unknown_signal_stack() const {
    const auto* threads = reinterpret_cast<const abi::Thread*>(control()->threads);
    std::size_t unknown = control()->signal_stacks;
    for (std::size_t t = 0; t < control()->thread_count && unknown > 0; ++t)
      if (blocks_.block_of(threads[t].sp) != 0) --unknown;
    return unknown;
  }

  // Searches everything reachable, unless that has been done.
  void search(Roots& roots) {
    if (has_searched_) return;
    has_searched_ = true;
    search_roots(roots);
    search_heap();
  }

  void search_roots(Roots& roots) {
    auto found = [this](uint64_t block, uint32_t form, uint32_t rank, uint64_t at, uint64_t value) {
      suggest(block, {at, value, 0, form, rank, 0});
    };
    roots.each_part([&](uint64_t start, uint64_t end) {
      each_piece(start, end, end, [&](uint64_t from, uint64_t to) {
        meanings_.aligned(from, to, {start, end}, found);
        meanings_.narrow(from, to, {start, end}, found);
        meanings_.unaligned(from, to, found);
      });
    });
    roots.each_register_word([&](uint64_t index, uint64_t value) {
      meanings_.of_value(value, [&](uint64_t block, uint32_t form, uint32_t rank) {
        if (heaps::kWord == 8 || form != wire::kMangled)  // otherwise it is by chance
          suggest(block, {0, value, static_cast<uint32_t>(index), form, rank, 0});
      });
    });
  }

  void search_heap() {
    auto found = [this](uint64_t block, uint32_t form, uint32_t rank, uint64_t at, uint64_t value) {
      if (is_in_reach(at)) suggest(block, found_in_block(block, {at, value, 0, form, rank, 0}));
    };
    Notes distances, narrow;
    const bool may_have_lua_arrays = has_lua_array();
    visit_heap(blocks_, [&](uint64_t start, uint64_t end) {
      meanings_.aligned(start, end, {start, end}, found);
      meanings_.unaligned(start, end, found);
      if (may_have_lua_arrays) search_lua_tables({start, end}, found);
      meanings_.note_relative_candidates(start, end, [&](uint64_t at) { note(distances, at); });
      meanings_.note_narrow_candidates(start, end, [&](uint64_t at) { note(narrow, at); });
    });
    meanings_.learn(distances.words);
    look_again(distances,
               [&](uint64_t start, uint64_t end) { meanings_.relative(start, end, found); });
    meanings_.learn_tables(narrow.words);
    look_again(narrow, [&](uint64_t start, uint64_t end) {
      meanings_.narrow(start, end, {start, end}, found);
    });
  }

  bool has_lua_array() const {
    bool any = false;
    candidates_.each([&](uint64_t block) {
      any = any || LuaArrays::may_be_one({block, blocks_.end_of(block)});
    });
    return any;
  }

  // Marking has put aside what leads to some arrays, since it looks like a link of a free list.
  template <typename Found>
  void search_lua_tables(heaps::Range piece, Found found) const {
    each_marked_in_piece(blocks_, piece, [&](uint64_t block) {
      uint64_t array = LuaArrays::array_of(blocks_, {block, blocks_.end_of(block)});
      if (array == 0 || blocks_.is_marked(array)) return;
      uint64_t at = block + LuaArrays::kPointer;
      found(array, wire::kRelative, kInUse, at, heaps::word(at));
    });
  }

  void note(Notes& notes, uint64_t at) {
    if (!is_in_reach(at)) return;
    SpinLock::Guard guard(lock_);
    notes.are_all = notes.words.push(at) && notes.are_all;
  }

  // Calls look(start, end) for the noted words, or for the whole heap if they did not fit.
  template <typename Look>
  void look_again(const Notes& notes, Look look) {
    if (!notes.are_all) return visit_heap(blocks_, look);
    for (uint64_t at : notes.words) look(at, at + sizeof(uint64_t));
  }

  bool is_in_reach(uint64_t slot) const {
    uint64_t block = blocks_.block_of(slot);
    return block != 0 && blocks_.is_marked(block);
  }

  void suggest_left_over(Sighting sighting) {
    uint64_t block = blocks_.block_of(sighting.value);
    if (block != 0 && !blocks_.is_marked(block)) suggest(block, sighting);
  }

  // Rarely called, so the lock costs nothing.
  void suggest(uint64_t block, Sighting sighting) {
    sighting.about = candidates_.find(block);
    SpinLock::Guard guard(lock_);
    candidates_.suggest(sighting.about, sighting);
  }

  // Takes all blocks that words of this rank mean, and their descendants.
  void settle(uint32_t rank) {
    for (std::size_t i = 0; i < candidates_.suggested().size(); ++i) {
      uint32_t candidate = candidates_.suggested()[i];
      if (candidates_.sighting(candidate)->rank == rank) take(candidate, rank);
      spread(rank);
    }
  }

  void take(uint32_t candidate, uint32_t rank) {
    uint64_t block = candidates_.block(candidate);
    if (blocks_.mark(block) == 0) return;
    if (rank != kInUse) doubtful_[rank].push(block);
    open_.push(candidate);
  }

  // What a doubtful block points to is at least as doubtful as the block itself.
  void spread(uint32_t rank) {
    while (!open_.empty()) {
      uint32_t owner = open_.pop();
      uint64_t start = candidates_.block(owner), end = blocks_.end_of(start);
      const LeftBehind left_behind(blocks_, start);
      each_word(space_, start, end, [&](uint64_t at, uint64_t value) {
        uint64_t child = blocks_.block_of(value);
        if (child == 0 || blocks_.is_marked(child)) return;
        if (left_behind.has(at, value)) return consider(child, stale_word(at, value), rank);
        uint32_t candidate = candidates_.find(child);
        if (const Sighting* seen = candidates_.sighting(owner)) inherit(candidate, *seen, rank);
        take(candidate, rank);
      });
      spread_by_other_forms(start, end, rank);
    }
  }

  void inherit(uint32_t candidate, Sighting sighting, uint32_t rank) {
    sighting.rank = rank;
    candidates_.suggest(candidate, sighting);
  }

  // Takes what a word in a block of this rank means, unless the word is weaker evidence than the
  // block.
  void consider(uint64_t block, Sighting sighting, uint32_t rank) {
    if (sighting.rank < rank) sighting.rank = rank;
    suggest(block, sighting);
    if (sighting.rank == rank) take(candidates_.find(block), rank);
  }

  void spread_by_other_forms(uint64_t start, uint64_t end, uint32_t rank) {
    auto found = [&](uint64_t block, uint32_t form, uint32_t its_rank, uint64_t at,
                     uint64_t value) {
      consider(block, found_in_block(block, {at, value, 0, form, its_rank, 0}), rank);
    };
    meanings_.aligned(start, end, {start, end}, found);
    meanings_.narrow(start, end, {start, end}, found);
    meanings_.unaligned(start, end, found);
    meanings_.relative(start, end, found);
  }

  const heaps::Space& space_;
  BlockMap& blocks_;
  std::size_t unmarked_;
  Candidates candidates_;
  Meanings meanings_;
  bool has_searched_ = false;
  const Lookalikes* lookalikes_ = nullptr;  // what they put in doubt are candidates, too
  List<uint32_t> open_;                     // taken, but not yet scanned
  List<uint64_t> doubtful_[kRankCount];     // marked blocks, by rank
  SpinLock lock_;
};

inline Lookalikes& new_lookalikes(const heaps::Space& space, BlockMap& blocks,
                                  const List<uint64_t>& in_use) {
  return *new (map_memory(sizeof(Lookalikes))) Lookalikes(space, blocks, in_use);
}

inline DoubtPass& new_doubt_pass(const heaps::Space& space, BlockMap& blocks) {
  return *new (map_memory(sizeof(DoubtPass))) DoubtPass(space, blocks, count_unmarked(blocks));
}

// The result of find_lookalikes().
struct Doubts {
  Lookalikes& lookalikes;
  DoubtPass* before;  // over the blocks that were unmarked before; may be null
};

// Finds lookalikes, given that everything reachable is marked, and unmarks those in doubt. A block
// that turns out to be in use, although no pointer leads to it, is not a leak that others could
// look like.
inline Doubts find_lookalikes(const heaps::Space& space, Roots& roots, BlockMap& blocks) {
  if (!Lookalikes::are_sought() || count_unmarked(blocks) == 0)
    return {new_lookalikes(space, blocks, {}), nullptr};
  DoubtPass& before = new_doubt_pass(space, blocks);
  Lookalikes& found = new_lookalikes(space, blocks, before.mark_blocks_in_use(roots));
  found.doubt(roots);
  before.unmark_all();
  return {found, &before};
}

// Unmarks what only unused words hold, with all that it leads to, however much that is: marks
// everything again without following these words. What is in doubt stays so, but it counts as in
// use for what it leads to, since other words are weaker evidence.
inline void unmark_what_unused_words_hold(const heaps::Space& space, Roots& roots, BlockMap& blocks,
                                          DeferredWords& put_aside, const Lookalikes& lookalikes) {
  if (!lookalikes.has_unused_words()) return;
  const List<uint64_t> in_doubt = lookalikes.in_doubt();
  const IgnoredWords unused = lookalikes.unused_words();
  blocks.each_marked([&](uint64_t block) { blocks.clear_mark(block); });
  mark_reachable(space, roots, blocks, put_aside, blocks.regions.bytes(), {}, &unused);
  for (uint64_t block : in_doubt) blocks.clear_mark(block);
}

inline Doubts doubt_lookalikes(const heaps::Space& space, Roots& roots, BlockMap& blocks,
                               DeferredWords& put_aside) {
  const Doubts found = find_lookalikes(space, roots, blocks);
  unmark_what_unused_words_hold(space, roots, blocks, put_aside, found.lookalikes);
  return found;
}

// Returns a pass over all blocks that are unmarked now: if no more have become so, the one before,
// whose search is done.
inline DoubtPass& pass_over_unmarked(const heaps::Space& space, BlockMap& blocks,
                                     const Doubts& doubts) {
  const bool is_same = doubts.before != nullptr && doubts.before->is_about_all_unmarked();
  return is_same ? *doubts.before : new_doubt_pass(space, blocks);
}

// Sends all leaks. What is reachable from `roots` in `blocks` is marked.
inline void collect_all_leaks(const heaps::Space& space, Roots& roots, BlockMap& blocks,
                              DeferredWords& put_aside, LeakWriter& writer) {
  if (count_unmarked(blocks) == 0 && !knows_lost_blocks()) return;
  const Doubts doubts = doubt_lookalikes(space, roots, blocks, put_aside);
  const List<uint64_t> lost_before = unmark_lost_before(space, blocks);
  DoubtPass& second = pass_over_unmarked(space, blocks, doubts);
  second.suggest_lost_before(lost_before);
  second.look(roots, put_aside, doubts.lookalikes);
  second.collect(writer);
}

}  // namespace reachscan::sweeper
