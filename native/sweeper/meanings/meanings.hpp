// What words may mean other than as pointers: finds those that lead to unmarked blocks.
#pragma once

#include "libc/pointer_guard.hpp"
#include "sweeper/mark/words.hpp"
#include "sweeper/meanings/candidates.hpp"
#include "sweeper/meanings/disguise.hpp"
#include "sweeper/meanings/doubling.hpp"
#include "sweeper/meanings/fontconfig.hpp"
#include "sweeper/meanings/glib_tables.hpp"
#include "sweeper/meanings/narrow.hpp"
#include "sweeper/meanings/packed.hpp"
#include "sweeper/meanings/python_int.hpp"
#include "sweeper/meanings/relative.hpp"
#include "sweeper/search/stretches.hpp"

namespace reachscan::sweeper {

inline uint64_t find_pointer_guard(const heaps::Space& space) {
  const auto* threads = reinterpret_cast<const abi::Thread*>(control()->threads);
  return libc::find_pointer_guard(space, threads, control()->thread_count);
}

class Meanings {
 public:
  Meanings(const heaps::Space& space, const BlockMap& blocks, const Candidates& candidates)
      : Meanings(space, blocks, candidates, candidates.hulls(blocks)) {}

  // Each calls visit(block, form, rank, slot, value) for the words of [start, end) that mean an
  // unmarked block. What such a word means may depend on others: on those of its block, or `around`
  // it if it is in none.
  template <typename Visit>
  void aligned(uint64_t start, uint64_t end, Range around, Visit visit) const {
    each_word_that(space_, start, end, disguises_, [&](uint64_t at, uint64_t value) {
      if (disguises_.passes(value)) as_disguise(at, value, visit);
    });
    if (!doubling_.is_empty()) in_pieces(start, end, around, visit);
  }

  // The same for pointers of 32 bits. In the heap, what they mean depends on tables: see
  // learn_tables().
  template <typename Visit>
  void narrow(uint64_t start, uint64_t end, Range around, Visit visit) const {
    each_narrow(start, end, [&](uint64_t word, uint64_t at, uint64_t value, uint64_t target) {
      if (at == word && as_python_int(at, visit)) return;
      Standing standing = standing_of(at, value, around);
      if (standing == Standing::kNone) return;
      bool sure = standing == Standing::kCertain;
      visit(target, wire::kNumber, sure ? kInUse : rank_of(wire::kNumber), at, value);
    });
  }

  // Calls visit(slot) for words that narrow() must look at after learn_tables().
  template <typename Visit>
  void note_narrow_candidates(uint64_t start, uint64_t end, Visit visit) const {
    each_narrow(start, end, [&](uint64_t word, uint64_t, uint64_t, uint64_t) { visit(word); });
  }

  // Parts of two neighbouring numbers of 32 bits are often a short address by chance.
  template <typename Visit>
  void unaligned(uint64_t start, uint64_t end, Visit visit) const {
    each_unaligned_that(space_, start, end, packed_, [&](uint64_t at, uint64_t value) {
      uint64_t block = unmarked(block_starting_at(value));
      // Both ends of the word must be in the same block, or in none.
      if (block == 0 || blocks_.block_of(at) != blocks_.block_of(at + heaps::kWord - 1)) return;
      bool sure = value >> kNarrowBits != 0;
      visit(block, wire::kUnaligned, sure ? kInUse : rank_of(wire::kUnaligned), at, value);
    });
  }

  // For words in blocks. What they mean depends on the whole heap: see learn().
  template <typename Visit>
  void relative(uint64_t start, uint64_t end, Visit visit) const {
    each_near_distance(start, end, [&](Field field, uint64_t target, uint64_t at) {
      auto standing = fields_.standing(field);
      bool sure = standing == Standing::kCertain || is_in_array(field, target, at) ||
                  is_of_fontconfig(field, at);
      if (!sure && standing == Standing::kNone) return;
      visit(target, wire::kRelative, sure ? kInUse : rank_of(wire::kRelative), at, heaps::word(at));
    });
  }

  // Calls visit(slot) for words that may be distances, and notes their fields for learn(). Called
  // for the whole heap before learn().
  template <typename Visit>
  void note_relative_candidates(uint64_t start, uint64_t end, Visit visit) {
    each_near_distance(start, end, [&](Field field, uint64_t, uint64_t at) {
      fields_.add(field);
      visit(at);
    });
  }

  // The same for a word outside memory: visit(block, form, rank).
  template <typename Visit>
  void of_value(uint64_t value, Visit visit) const {
    disguises_.each_meaning(value, [&](uint32_t form, uint64_t address) {
      uint64_t block = form == wire::kOnePastTheEnd ? block_ending_at(address)
                       : form == wire::kNumber      ? block_starting_at(address)
                                                    : blocks_.block_of(address);
      if (unmarked(block) != 0) visit(block, form, rank_of(form));
    });
  }

  // Finds the tables that these words, which were noted, are in.
  void learn_tables(const List<uint64_t>& narrow) { glib_tables_.find(narrow); }

  // Counts, over many blocks, whether the noted fields hold distances. Sorts `noted`, the words
  // that were noted.
  void learn(List<uint64_t>& noted) {
    if (fields_.empty()) return;
    const RelativeFilter everywhere(blocks_.hulls());
    auto count = [&](Field field, uint64_t target, uint64_t at) {
      RelativeFields::Row* row = fields_.find(field);
      uint64_t value = heaps::word(at);
      if (row == nullptr || is_short_text(value)) return;
      const heaps::Cluster* cluster = blocks_.cluster_of(target);
      if (cluster == nullptr || !cluster->is_inhabited(target)) return;
      row->all.count(value, blocks_.is_live(target));
      if (!row->lost.has(value) && candidates_.any_near(blocks_, target))
        count_lost(*row, value, target);
    };
    auto any = [](uint64_t) { return true; };
    auto look = [&](uint64_t start, uint64_t end) {
      each_distance(start, end, everywhere, any, count);
    };
    // Of numbers that share a bit of a tally, the first one counts; so the order matters.
    uint64_t one_in = visit_heap_in_order(blocks_, look, kMaxLearnedBytes);
    if (one_in > 1 && noted.size() <= kMaxCounted) count_noted(noted, one_in);
  }

 private:
  using Standing = RelativeFields::Standing;

  static constexpr uint64_t kMaxLearnedBytes = 64 << 20;  // bytes
  // Of more words, most lead somewhere by chance, and the samples of all fields are large. Far less
  // than can be noted at all.
  static constexpr std::size_t kMaxCounted = 1 << 16;

  Meanings(const heaps::Space& space, const BlockMap& blocks, const Candidates& candidates,
           const heaps::Hulls& hulls)
      : space_(space),
        blocks_(blocks),
        candidates_(candidates),
        doubling_(space, blocks, candidates),
        tables_(doubling_.widened(hulls)),
        disguises_(hulls, find_pointer_guard(space)),
        packed_(hulls),
        narrow_(hulls),
        glib_tables_(space, blocks),
        fontconfig_(space, blocks),
        distances_(hulls) {}

  template <typename Visit>
  void in_pieces(uint64_t start, uint64_t end, Range around, Visit visit) const {
    each_word_that(space_, start, end, tables_, [&](uint64_t at, uint64_t value) {
      doubling_.each_piece_at(at, around, [&](uint64_t block, bool is_sure) {
        if (unmarked(block) == 0) return;
        visit(block, wire::kRelative, is_sure ? kInUse : rank_of(wire::kRelative), at, value);
      });
    });
  }

  template <typename Visit>
  void as_disguise(uint64_t at, uint64_t value, Visit visit) const {
    of_value(value, [&](uint64_t block, uint32_t form, uint32_t rank) {
      bool by_chance = form == wire::kMangled && !disguises_.may_be_mangled(space_, at);
      if (!by_chance) visit(block, form, rank, at, value);
    });
    as_python_int(at, visit);
  }

  // Nothing else looks like the object of a number, so it counts like a pointer.
  template <typename Visit>
  bool as_python_int(uint64_t at, Visit visit) const {
    uint64_t block = unmarked(block_starting_at(python_int_at(space_, at)));
    if (block != 0) visit(block, wire::kNumber, kInUse, at, heaps::word(at));
    return block != 0;
  }

  // Calls visit(word, slot, value, target) for halves of words that lead to an unmarked block.
  template <typename Visit>
  void each_narrow(uint64_t start, uint64_t end, Visit visit) const {
    if (heaps::kWord != 8 || narrow_.is_empty()) return;
    each_word_that(space_, start, end, narrow_, [&](uint64_t word, uint64_t) {
      each_half(word, [&](uint64_t at, uint64_t value) {
        uint64_t target = unmarked(block_starting_at(value - value % kTags));
        if (target != 0) visit(word, at, value, target);
      });
    });
  }

  Standing standing_of(uint64_t at, uint64_t value, Range around) const {
    uint64_t holder = blocks_.block_of(at);
    auto slot = holder != 0 ? glib_tables_.slot(holder, at) : GlibTables::Slot::kUnknown;
    if (slot != GlibTables::Slot::kUnknown)
      return slot == GlibTables::Slot::kUsed ? Standing::kCertain : Standing::kNone;
    Company company = company_of(
        holder != 0 ? Range{holder, blocks_.end_of(holder)} : around, at,
        [&](uint64_t number) { return block_starting_at(number / kTags * kTags) != 0; },
        [&](uint64_t other) { return space_.find(other) != nullptr; });
    // Too many numbers would be tagged addresses by chance.
    if (value % kTags != 0 && company == Company::kNumbers) return Standing::kNone;
    return company == Company::kPointers ? Standing::kCertain : Standing::kPossible;
  }

  // Calls visit(field, target, slot) for words that lead to an unmarked block if they are
  // distances.
  template <typename Visit>
  void each_near_distance(uint64_t start, uint64_t end, Visit visit) const {
    auto near = [this](uint64_t target) { return candidates_.any_near(blocks_, target); };
    each_distance(start, end, distances_, near, [&](Field field, uint64_t target, uint64_t at) {
      if (blocks_.is_live(target) && !blocks_.is_marked(target) && !is_in_pool(target))
        visit(field, target, at);
    });
  }

  bool is_of_fontconfig(Field field, uint64_t at) const {
    uint64_t block = blocks_.block_of(at);
    return !is_from_word(field) && fontconfig_.is_distance({block, blocks_.end_of(block)}, at);
  }

  // Returns whether a word is one of several in a row that lead, from the start of their block, to
  // different unmarked blocks of one size: fontconfig's sets of characters have such arrays.
  // Numbers at equal intervals lead to blocks at equal intervals by chance.
  bool is_in_array(Field field, uint64_t target, uint64_t at) const {
    constexpr uint64_t kFewest = 4, kReach = 32 * heaps::kWord;
    if (is_from_word(field)) return false;
    const uint64_t start = blocks_.block_of(at), end = blocks_.end_of(start);
    const uint64_t size = size_of(target);
    auto is_alike = [&](uint64_t slot, uint64_t neighbour) {
      if (slot / heaps::kPage != at / heaps::kPage) return false;  // it may be absent
      uint64_t other = heaps::wrapped(start + heaps::word(slot));
      return heaps::word(slot) != heaps::word(neighbour) &&
             candidates_.find(other) != Candidates::kNone && size_of(other) <= size + kTooLittle &&
             size <= size_of(other) + kTooLittle;
    };
    uint64_t first = at, last = at;
    while (first > start && at - first < kReach && is_alike(first - heaps::kWord, first))
      first -= heaps::kWord;
    while (end - last >= 2 * heaps::kWord && last - at < kReach &&
           is_alike(last + heaps::kWord, last))
      last += heaps::kWord;
    bool is_even = true;
    for (uint64_t slot = first + 2 * heaps::kWord; slot <= last; slot += heaps::kWord)
      is_even &= step_to(slot) == step_to(first + heaps::kWord);
    return last - first >= (kFewest - 1) * heaps::kWord && !is_even;
  }

  static uint64_t step_to(uint64_t slot) {
    return heaps::wrapped(heaps::word(slot) - heaps::word(slot - heaps::kWord));
  }

  uint64_t size_of(uint64_t block) const { return blocks_.end_of(block) - block; }

  // Asks `near` first whether the distance from the word, which exceeds the one from the start of
  // its block, deserves a closer look.
  template <typename Near, typename Visit>
  void each_distance(uint64_t start, uint64_t end, const RelativeFilter& filter, Near near,
                     Visit visit) const {
    Range block{0, 0};  // of the previous word
    each_word_that(space_, start, end, filter, [&](uint64_t at, uint64_t value) {
      if (!near(heaps::wrapped(at + value))) return;
      if (!block.contains(at)) {
        block.start = blocks_.block_of(at);
        block.end = block.start != 0 ? blocks_.end_of(block.start) : 0;
      }
      if (!block.contains(at)) return;
      each_target(block, at, [&](Field field, uint64_t target) { visit(field, target, at); });
    });
  }

  // Counts those that lead to unmarked blocks, of which one in so many was already counted.
  void count_noted(List<uint64_t>& noted, uint64_t one_in) {
    heaps::sort(noted);
    for (uint64_t slot : noted) {
      each_near_distance(slot, slot + heaps::kWord, [&](Field field, uint64_t target, uint64_t at) {
        RelativeFields::Row* row = fields_.find(field);
        if (row != nullptr) count_lost(*row, heaps::word(at), target);
      });
    }
    fields_.weigh_misses(one_in);
  }

  void count_lost(RelativeFields::Row& row, uint64_t value, uint64_t target) const {
    uint64_t block = unmarked(blocks_.block_of(target));
    if (block != 0) row.count_lost(value, target == block, blocks_.end_of(block) - block);
  }

  uint64_t unmarked(uint64_t block) const {
    return block != 0 && !blocks_.is_marked(block) ? block : 0;
  }

  uint64_t block_starting_at(uint64_t address) const {
    return blocks_.is_live(address) ? address : 0;
  }

  // A block ends inside the granule that holds the next one's size word, or with its own mapping:
  // no other block can start there. If something else is mapped after it, the word may mean that.
  // Searching for the end from the start would take long in large blocks. Where blocks are
  // adjacent, every pointer may be to the end of the block before.
  uint64_t block_ending_at(uint64_t value) const {
    bool at_page = value % heaps::kPage == 0;
    if (at_page ? space_.find(value) != nullptr : value % heaps::kGranule != heaps::kEndOffset)
      return 0;
    if (!candidates_.may_end_at(value)) return 0;
    if (!blocks_.may_point(value - 1) || blocks_.block_of(value) != 0) return 0;
    uint64_t block = blocks_.block_of(value - 1);
    return is_in_pool(block) ? 0 : block;
  }

  // Python finds blocks in its pools through pointers only, and its memory is full of small
  // numbers. A pointer to the end of a block there points to the next block, which was freed.
  bool is_in_pool(uint64_t block) const {
    const heaps::Region* region = control()->python != 0 ? blocks_.region_of(block) : nullptr;
    return region != nullptr && region->kind == wire::kPools;
  }

  const heaps::Space& space_;
  const BlockMap& blocks_;
  const Candidates& candidates_;
  DoublingArrays doubling_;
  TableFilter tables_;
  DisguiseFilter disguises_;
  PackedFilter packed_;
  NarrowFilter narrow_;
  GlibTables glib_tables_;
  Fontconfig fontconfig_;
  RelativeFilter distances_;
  RelativeFields fields_;
};

}  // namespace reachscan::sweeper
