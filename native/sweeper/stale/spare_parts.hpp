// Parts of blocks that are not in use, although the blocks are: past the length of an array,
// outside of the ends of a deque, ahead of where a bump allocator continues, and the values of free
// keys in a hash table. Words there are from a former use of the memory.
//
//   words that tell it         in use
//   begin, end, capacity       up to the end            an array like std::vector
//   current, limit             up to current            llvm::BumpPtrAllocator
//   two iterators              in between               std::deque (containers.hpp)
//   address, two numbers       up to the smaller        a buffer of bytes (containers.hpp)
//   numbers of keys            values of those          llvm::DenseMap (containers.hpp)
//   number of items: none      nothing of the room      llvm::SmallVector (containers.hpp)
//
// Nothing else looks like the third to fifth, or like the second if a vector of slabs follows,
// unless a map is empty, or a buffer of bytes has pointers in it. A reader of an array also has
// words like the first two, and what it has yet to read is in use. So such a part, an empty map, or
// room for items, is only spare if its words look stale. The same is true of tables that no map is
// known to own, with keys that are numbers, unless the values of other keys are no pointers. A
// stack is in use from where it continues to its end: a register points there, or words there are
// return addresses.
//
// An address with two short numbers behind it may be an array that counts its items (GPtrArray),
// but also one with a flag there (OpenSSL's stacks), so such numbers tell nothing.
#pragma once

#include "sweeper/mark/dense_maps.hpp"
#include "sweeper/mark/spin_lock.hpp"
#include "sweeper/mark/words.hpp"
#include "sweeper/roots/roots.hpp"
#include "sweeper/search/range_filter.hpp"
#include "sweeper/search/stretches.hpp"
#include "sweeper/stale/aims.hpp"
#include "sweeper/stale/containers.hpp"

namespace reachscan::sweeper {

class SpareParts {
 public:
  SpareParts(const heaps::Space& space, const BlockMap& blocks)
      : space_(space),
        blocks_(blocks),
        bumps_(space),
        deques_(space, blocks),
        owners_(map_memory, kMaxOwners) {}

  // Returns whether a block is large enough to have any.
  bool may_be_in(uint64_t block) const { return blocks_.end_of(block) - block >= kLeastBytes; }

  // Requests that the block be examined. If there is no room for more, all of it counts as used.
  // Not thread-safe.
  void ask(uint64_t block) {
    if (owners_.empty() || owners_[owners_.size() - 1].block != block)
      owners_.push({.block = block, .end = blocks_.end_of(block)});
  }

  // Called once, after all calls to ask(). Blocks that are not marked do not count.
  void find(Roots& roots) {
    if (owners_.empty()) return;
    sort_owners();
    const RangeFilter filter(heaps::Range{owners_[0].block, owners_[owners_.size() - 1].end + 1});
    auto look = [&](uint64_t start, uint64_t end) {
      each_word_that(space_, start, end, filter,
                     [&](uint64_t slot, uint64_t value) { consider(slot, value); });
    };
    roots.each_part(look);
    visit_heap(blocks_, look);
    for (Owner& owner : owners_) judge(owner);
    find_pointers(roots);
  }

  // Called for a block that has been marked since. Returns whether it shows that a part that was
  // thought to be stale is in use.
  bool find_use_by(uint64_t block) {
    bool any = false;
    if (!has_stale_ends_) return any;
    each_word(space_, block, blocks_.end_of(block), [&](uint64_t slot, uint64_t value) {
      any = (blocks_.may_point(value) && consider_pointer(slot, value)) || any;
    });
    return any;
  }

  // For blocks passed to ask().
  bool contain(uint64_t block, uint64_t slot) const {
    std::size_t at = position_of(block);
    if (at == kNone) return false;
    const Owner& owner = owners_[at];
    if ((owner.ends_are_stale || owner.is_certain) && is_outside(owner, slot)) return true;
    if (slot >= owner.text_end) return true;
    if (owner.buckets && owner.buckets->is_unused(slot)) return true;
    if (owner.has_stale_room && is_in_stale_room(owner, slot)) return true;
    if (owner.stale_columns == 0) return false;
    const NumberMap table({block, owner.end});
    return (owner.stale_columns >> table.column_of(slot) & 1) != 0 && table.is_free_around(slot);
  }

 private:
  using NumberMap = DenseMap<FreeNumbers>;

  static constexpr uint64_t kLeastBytes = 128;
  static constexpr std::size_t kMaxOwners = 1 << 16;
  static constexpr uint64_t kFewestUsed = 8;  // keys, whose values tell what values are like
  static constexpr uint64_t kMostObjectBytes = 4096;  // of what has vectors in it
  static constexpr uint64_t kMostAfterText = 2;  // pointers; more may be messages yet to be read
  static constexpr uint64_t kUnknown = ~0ull;
  static constexpr std::size_t kNone = ~0ul;
  static constexpr uint64_t kStarts = 1 << 16;

  static uint64_t start_slot(uint64_t address) { return address / heaps::kGranule % kStarts; }

  struct Owner {
    uint64_t block = 0, end = 0;
    uint64_t used_from = 0, used_to = kUnknown;
    uint64_t limit = 0;  // the end of what was requested, if one of these is known
    uint64_t text_end = kUnknown;
    bool is_certain = false;  // what is in use
    bool ends_are_stale = false, has_stale_room = false;
    uint32_t stale_columns = 0;  // of a table, a bit for each: values of free keys are stale
    std::optional<Buckets> buckets = {};
  };

  void sort_owners() {
    heaps::sort(owners_, [](const Owner& a, const Owner& b) { return a.block < b.block; });
    heaps::remove_repeats(owners_,
                          [](const Owner& a, const Owner& b) { return a.block == b.block; });
    for (const Owner& owner : owners_) {
      starts_[start_slot(owner.block)] = 1;
      if (owner.end - owner.block > longest_) longest_ = owner.end - owner.block;
    }
  }

  // Returns kNone for a block that was not passed to ask().
  std::size_t position_of(uint64_t block) const {
    std::size_t at = count_before(block);
    return at < owners_.size() && owners_[at].block == block ? at : kNone;
  }

  std::size_t count_before(uint64_t address) const {
    return heaps::partition_point(owners_.size(),
                                  [&](std::size_t i) { return owners_[i].block < address; });
  }

  // Looks whether the word at `slot` is the end of a block's capacity, and the words before it say
  // how much of it is in use.
  void consider(uint64_t slot, uint64_t limit) {
    if (!has_neighbours(slot)) return;
    if (starts_[start_slot(limit)] != 0) consider_start(slot, limit);
    uint64_t before = heaps::word(slot - heaps::kWord);
    if (limit - before > longest_) return;
    std::size_t at = position_of(blocks_.block_of(limit - 1));
    if (at == kNone) return;
    Owner& owner = owners_[at];
    bool fits = heaps::may_hold_request(owner.end - owner.block, limit - owner.block);
    if (before < owner.block || !fits) return;
    uint64_t first = slot - 2 * heaps::kWord, current = heaps::word(first);
    SpinLock::Guard guard(lock_);
    owner.limit = limit;
    if (before == owner.block && deques_.is_iterator(first)) {
      consider_iterator(owner, first, current);
    } else if (before > owner.block || current == owner.block) {
      extend_to(owner, before);
      if (bumps_.has_limit_of(owner.block, slot)) owner.is_certain = true;
    }
  }

  void consider_start(uint64_t slot, uint64_t start) {
    std::size_t at = position_of(start);
    if (at == kNone) return;
    const heaps::Range block{start, owners_[at].end};
    auto buckets = MapTest(space_, slot, block).buckets();
    auto bytes = BufferTest(space_).used_bytes(slot, block);
    SpinLock::Guard guard(lock_);
    if (buckets) owners_[at].buckets = buckets;
    if (!bytes) return;
    uint64_t& end = owners_[at].text_end;
    if (end == kUnknown || start + *bytes > end) end = start + *bytes;
  }

  void consider_iterator(Owner& owner, uint64_t at, uint64_t current) {
    bool is_first = deques_.has_first(at), is_end = !is_first && deques_.has_end(at);
    if (is_first && (owner.used_from == 0 || current < owner.used_from)) owner.used_from = current;
    if (is_end) extend_to(owner, current);
    if (is_first || is_end) owner.is_certain = true;
  }

  bool has_neighbours(uint64_t slot) const {
    uint64_t first = slot - 2 * heaps::kWord, bytes = 3 * heaps::kWord;
    return first / heaps::kPage == (first + bytes - 1) / heaps::kPage ||
           space_.readable(first, bytes);
  }

  static void extend_to(Owner& owner, uint64_t end) {
    if (owner.used_to == kUnknown || end > owner.used_to) owner.used_to = end;
  }

  static bool is_outside(const Owner& owner, uint64_t slot) {
    return slot < owner.used_from || slot >= owner.used_to;
  }

  void judge(Owner& owner) {
    Aims ends{}, of_free{}, of_text{}, after_text{};
    bool has_code = false;
    each_word(space_, owner.block, owner.end, [&](uint64_t slot, uint64_t value) {
      if (is_outside(owner, slot)) {
        ends.count(blocks_, value);
        has_code = has_code || space_.is_code(value);
      }
      (slot < owner.text_end ? of_text : after_text).count(blocks_, value);
      if (owner.buckets && owner.buckets->is_unused(slot)) of_free.count(blocks_, value);
    });
    owner.ends_are_stale = owner.ends_are_stale || (ends.look_stale() && !has_code);
    bool is_text = of_text.starts == 0 && after_text.starts <= kMostAfterText;
    if (!is_text) owner.text_end = kUnknown;
    bool is_map = owner.buckets.has_value();
    if (is_map && owner.buckets->are_all_free && !of_free.look_stale()) owner.buckets = {};
    each_stale_room(owner, [&](heaps::Range) { owner.has_stale_room = true; });
    const NumberMap table({owner.block, owner.end});
    if (!is_map && table.columns() != 0) owner.stale_columns = stale_columns(owner, table);
  }

  // Calls visit(room) for the room in each vector of an object that has no items, if the words
  // there look stale: what looks like room may be fields.
  template <typename Visit>
  void each_stale_room(const Owner& owner, Visit visit) const {
    if (owner.end - owner.block > kMostObjectBytes) return;
    for (uint64_t at = owner.block; at + SmallVector::kBytes <= owner.end; at += heaps::kWord) {
      const SmallVector vector(at);
      if (!vector.has_items_inside()) continue;
      heaps::Range room = vector.empty_room(owner.end);
      Aims aims{};
      each_word(space_, room.start, room.end,
                [&](uint64_t, uint64_t value) { aims.count(blocks_, value); });
      if (aims.look_stale()) visit(room);
    }
  }

  bool is_in_stale_room(const Owner& owner, uint64_t slot) const {
    bool is = false;
    each_stale_room(owner,
                    [&](heaps::Range room) { is = is || (slot >= room.start && slot < room.end); });
    return is;
  }

  void find_pointers(Roots& roots) {
    heaps::Range hull{~0ull, 0};
    for (const Owner& owner : owners_) {
      if (!owner.ends_are_stale) continue;
      if (owner.block < hull.start) hull.start = owner.block;
      if (owner.end > hull.end) hull.end = owner.end;
    }
    if (hull.start > hull.end) return;
    has_stale_ends_ = true;
    const RangeFilter filter(hull);
    auto consider = [this](uint64_t slot, uint64_t value) { consider_pointer(slot, value); };
    roots.each_part([&](uint64_t start, uint64_t end) {
      each_word_that(space_, start, end, filter, consider);
    });
    visit_heap(blocks_, [&](uint64_t start, uint64_t end) {
      each_word_that(space_, start, end, filter, [&](uint64_t slot, uint64_t value) {
        uint64_t holder = blocks_.block_of(slot);
        if (holder != 0 && blocks_.is_marked(holder)) consider_pointer(slot, value);
      });
    });
    // A stack pointer may also be where the part begins.
    roots.each_register_word([this](uint64_t, uint64_t value) {
      Owner* owner = with_stale_ends_around(value);
      if (owner != nullptr && is_outside(*owner, value)) owner->ends_are_stale = false;
    });
  }

  // A pointer into a part shows that it is in use, as where objects are allocated from the end of a
  // buffer to its start. Returns whether it has been thought to be stale.
  bool consider_pointer(uint64_t slot, uint64_t value) {
    Owner* owner = with_stale_ends_around(value);
    if (owner == nullptr || !points_into_spare_part(*owner, value)) return false;
    bool is_stale = blocks_.block_of(slot) == owner->block && is_outside(*owner, slot);
    if (!is_stale) __atomic_store_n(&owner->ends_are_stale, false, __ATOMIC_RELAXED);
    return !is_stale;
  }

  Owner* with_stale_ends_around(uint64_t address) {
    std::size_t at = count_before(address + 1);
    if (at == 0 || address >= owners_[at - 1].end) return nullptr;
    Owner& owner = owners_[at - 1];
    return __atomic_load_n(&owner.ends_are_stale, __ATOMIC_RELAXED) ? &owner : nullptr;
  }

  static bool points_into_spare_part(const Owner& owner, uint64_t value) {
    return is_outside(owner, value) && value != owner.block && value != owner.used_to &&
           value < owner.limit;
  }

  uint32_t stale_columns(const Owner& owner, const NumberMap& table) const {
    Aims of_free{}, of_used[NumberMap::kMostWords] = {};
    uint64_t used = 0;
    each_word(space_, owner.block, owner.end, [&](uint64_t slot, uint64_t value) {
      bool is_free = table.is_free_around(slot);
      if (table.column_of(slot) == 0 && !is_free) ++used;
      if (!table.is_value(slot)) return;
      (is_free ? of_free : of_used[table.column_of(slot)]).count(blocks_, value);
    });
    uint32_t columns = 0;
    for (uint64_t i = 0; i < table.columns(); ++i) {
      bool is_no_pointer = used >= kFewestUsed && of_used[i].starts + of_used[i].inside == 0;
      bool is_value = table.is_value(owner.block + i * heaps::kWord);
      if (is_value && (of_free.look_stale() || is_no_pointer)) columns |= 1u << i;
    }
    return columns;
  }

  const heaps::Space& space_;
  const BlockMap& blocks_;
  BumpTest bumps_;
  DequeTest deques_;
  heaps::List<Owner> owners_;  // sorted by address after find()
  uint64_t longest_ = 0;
  bool has_stale_ends_ = false;
  Scratch<uint8_t> starts_{kStarts};  // 1: an owner may start there
  SpinLock lock_;
};

}  // namespace reachscan::sweeper
