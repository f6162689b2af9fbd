// Lists of CPython. The items are in a block of their own, and there may be room for more of them
// (Include/cpython/listobject.h).
//
//   references, type, items in use, address of the items, items that there is room for
//
// Lists are small, so they lie in arenas of the interpreter's own allocator.
#pragma once

#include "memory/rounding.hpp"
#include "sweeper/mark/words.hpp"
#include "sweeper/stale/targets.hpp"

namespace reachscan::sweeper {

class PythonLists {
 public:
  PythonLists(const heaps::Space& space, const heaps::BlockMap& blocks, Targets& targets)
      : space_(space), blocks_(blocks), targets_(targets), lists_(map_memory, kMaxLists) {}

  // Called for each list.
  void consider(uint64_t list) {
    uint64_t in_use = heaps::word(list + kInUse), items = heaps::word(list + kItems);
    if (blocks_.may_point(items) && blocks_.block_of(items) == items && has_room(list, items))
      add_targets({items, items + in_use * heaps::kWord});
  }

  // Called once, after all calls to consider().
  void sort() { heaps::sort(lists_, lies_before); }

  // Returns whether the word lies behind the last item of a list. Knows only lists that have words
  // there that lead to marked blocks.
  bool end_before(uint64_t owner, uint64_t slot) const {
    std::size_t at = heaps::lower_bound(lists_, Items{owner, 0}, lies_before);
    return at < lists_.size() && lists_[at].block == owner && slot >= lists_[at].end;
  }

 private:
  static constexpr std::size_t kMaxLists = 1 << 16;
  static constexpr uint64_t kInUse = 16, kItems = 24, kRoom = 32;  // of the fields
  static constexpr uint64_t kSmallestRequest = 16;                 // a block for less is no smaller

  struct Items {
    uint64_t block, end;
  };
  static bool lies_before(const Items& a, const Items& b) { return a.block < b.block; }

  // Returns whether the items are in a block of the size that the list says.
  bool has_room(uint64_t list, uint64_t block) const {
    uint64_t in_use = heaps::word(list + kInUse), room = heaps::word(list + kRoom);
    uint64_t bytes = blocks_.end_of(block) - block;
    if (in_use > room || room > bytes / heaps::kWord) return false;
    uint64_t request = room * heaps::kWord;
    return heaps::may_hold_request(bytes, request < kSmallestRequest ? kSmallestRequest : request);
  }

  void add_targets(Items items) {
    each_word(space_, items.end, blocks_.end_of(items.block), [&](uint64_t, uint64_t value) {
      if (!targets_.add(value)) return;
      bool is_new = lists_.empty() || lists_[lists_.size() - 1].block != items.block;
      if (is_new) lists_.push(items);
    });
  }

  const heaps::Space& space_;
  const heaps::BlockMap& blocks_;
  Targets& targets_;
  heaps::List<Items> lists_;  // sorted by address after sort()
};

}  // namespace reachscan::sweeper
