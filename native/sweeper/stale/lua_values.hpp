// Words in Lua's objects that hold nothing.
//
//   values                 value | type                      array of a table, stack, constants
//   nodes                  value | type | key | ...          hash part of a table
//   string                 header | length | text | end
//   table, function        ... | link for the garbage collector
//
// Lua sets the type of an empty slot to nil, and the value remains what it was; so does the key of
// an empty node. Of a type, Lua 5.4 writes one byte. What follows a text, or the last slot, was
// added by rounding the size up. All of this is from a former use of the memory.
//
// The arrays look like many others, so only those count that an object of Lua leads to, and only in
// a process with a thread of Lua and several tables.
#pragma once

#include <iterator>
#include <optional>

#include "sweeper/mark/scratch.hpp"
#include "sweeper/mark/spin_lock.hpp"
#include "sweeper/mark/words.hpp"
#include "sweeper/roots/roots.hpp"
#include "sweeper/search/range_filter.hpp"
#include "sweeper/search/stretches.hpp"
#include "sweeper/stale/lua_objects.hpp"
#include "sweeper/stale/targets.hpp"

namespace reachscan::sweeper {

class LuaValues {
 public:
  LuaValues(const heaps::Space& space, const heaps::BlockMap& blocks, Targets& targets)
      : space_(space), blocks_(blocks), targets_(targets) {}

  // Searches marked blocks; of a large heap, samples. Adds what such words lead to and, at its
  // start, no others.
  void find(Roots& roots) {
    if (heaps::kWord != 8 || !choose_layout()) return;
    parts_ = heaps::List<Part>(map_memory, kMaxParts);
    visit_marked_samples(blocks_, [this](heaps::Range block) { add_parts(block); });
    heaps::sort(parts_, lies_before);
    Targets found(space_, blocks_);
    for (const Part& part : parts_) add_targets(part.block, found);
    visit_marked_samples(blocks_, [&](heaps::Range range) {
      const uint64_t block = range.start;
      bool has_words = objects_->is_string(block) || objects_->is_table(block) ||
                       objects_->constants_of(block) != 0;
      if (has_words) add_targets(block, found);
    });
    found.sort();
    add_unless_held(found.blocks(), roots);
  }

  // Returns whether the word is in one of Lua's objects, and holds nothing.
  bool is_unused(uint64_t owner, uint64_t slot) const {
    if (!objects_) return false;
    std::size_t at = heaps::lower_bound(parts_, Part{owner, 0}, lies_before);
    if (at < parts_.size() && parts_[at].block == owner) return is_unused(parts_[at], slot);
    if (objects_->is_string(owner)) return slot + heaps::kWord > objects_->end_of_text(owner);
    return objects_->is_link(owner, slot);
  }

 private:
  static constexpr std::size_t kLayouts = std::size(LuaObjects::kLayouts);
  static constexpr std::size_t kMaxParts = 1 << 18;
  static constexpr uint64_t kMostBytesRead = 4096;  // of a target
  static constexpr unsigned kFewestTables = 8;      // fewer may look like tables by chance
  // The lower bits of types of values. A boolean has the value in its type, or in half a word.
  static constexpr uint8_t kNil = 0, kBoolean = 1, kTypeMask = 0xf;

  // A block with values or nodes.
  struct Part {
    uint64_t block, bytes_each;
  };
  static bool lies_before(const Part& a, const Part& b) { return a.block < b.block; }

  // Returns false if there is no Lua.
  bool choose_layout() {
    unsigned most = kFewestTables - 1, threads[kLayouts] = {};
    visit_marked_samples(blocks_, [&](heaps::Range block) {
      for (std::size_t i = 0; i < kLayouts; ++i)
        if (objects_of(i).stack_of(block) != 0) add_one(threads[i]);
    });
    for (std::size_t i = 0; i < kLayouts; ++i) {
      if (threads[i] == 0) continue;
      unsigned tables = 0;
      visit_marked_samples(blocks_, [&](heaps::Range block) {
        if (objects_of(i).is_table(block.start)) add_one(tables);
      });
      if (tables <= most) continue;
      most = tables;
      objects_.emplace(objects_of(i));
    }
    return objects_.has_value();
  }

  LuaObjects objects_of(std::size_t layout) const {
    return LuaObjects(blocks_, LuaObjects::kLayouts[layout]);
  }
  static void add_one(unsigned& count) { __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED); }

  void add_parts(heaps::Range block) {
    if (objects_->is_table(block.start)) {
      add_part(objects_->nodes_of(block.start), objects_->bytes_of_node());
      add_part(objects_->array_of(block.start), LuaObjects::kValue);
    } else {
      add_part(objects_->stack_of(block), LuaObjects::kValue);
      add_part(objects_->constants_of(block.start), LuaObjects::kValue);
    }
  }
  void add_part(uint64_t block, uint64_t bytes_each) {
    if (block == 0) return;
    SpinLock::Guard guard(lock_);
    parts_.push({block, bytes_each});
  }

  bool is_unused(const Part& part, uint64_t slot) const {
    uint64_t offset = (slot - part.block) % part.bytes_each, item = slot - offset;
    if (item + part.bytes_each > blocks_.end_of(part.block)) return true;
    uint8_t type = LuaObjects::type_of(item) & kTypeMask;
    if (offset == 0) return type <= kBoolean;
    if (offset == LuaObjects::kKey) return type == kNil;
    return offset == LuaObjects::kType || offset == LuaObjects::kKeyType;
  }

  void add_targets(uint64_t owner, Targets& found) const {
    each_word(space_, owner, blocks_.end_of(owner), [&](uint64_t slot, uint64_t value) {
      found.add_if(value, [&] { return is_unused(owner, slot); });
    });
  }

  // Most targets are in use, since what Lua frees is soon allocated again.
  void add_unless_held(const heaps::List<uint64_t>& found, Roots& roots) {
    if (found.empty()) return;
    Scratch<uint8_t> held(found.size());
    const RangeFilter filter(heaps::Range{found[0], found[found.size() - 1] + 1});
    auto look = [&](uint64_t slot, uint64_t value) {
      std::size_t at = heaps::lower_bound(found, value);
      bool is_target = at < found.size() && found[at] == value && held[at] == 0;
      if (is_target && may_hold(slot, value)) __atomic_store_n(&held[at], 1, __ATOMIC_RELAXED);
    };
    roots.each_part(
        [&](uint64_t start, uint64_t end) { each_word_that(space_, start, end, filter, look); });
    visit_heap(blocks_, [&](uint64_t start, uint64_t end) {
      each_word_that(space_, start, end, filter, look);
    });
    for (std::size_t at = 0; at < found.size(); ++at)
      if (held[at] == 0) targets_.add(found[at]);
  }

  // Returns whether the word is in use, and not in the target, nor in what that leads to: its
  // parent, or a neighbour in a list.
  bool may_hold(uint64_t slot, uint64_t target) const {
    uint64_t owner = blocks_.block_of(slot);
    if (owner == 0) return blocks_.region_of(slot) == nullptr;
    if (owner == target || !blocks_.is_marked(owner) || is_unused(owner, slot)) return false;
    bool leads_back = false;
    uint64_t end = blocks_.end_of(target), most = target + kMostBytesRead;
    each_word(space_, target, end < most ? end : most, [&](uint64_t, uint64_t value) {
      leads_back = leads_back || blocks_.block_of(value) == owner;
    });
    return !leads_back;
  }

  const heaps::Space& space_;
  const heaps::BlockMap& blocks_;
  std::optional<LuaObjects> objects_;  // none: no Lua
  heaps::List<Part> parts_;            // sorted by address
  Targets& targets_;
  SpinLock lock_;
};

}  // namespace reachscan::sweeper
