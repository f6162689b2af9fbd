// Decides which unreachable Python objects are leaks. Objects that only hold each other wait for
// the collector, which will free them: all references that they count can be found among them. If
// an object counts more references than can be found, some were never released: it leaks, with
// everything it holds.
//
// Unreachable blocks that are not objects leak as in any other program. An object that such a block
// holds counts a reference that no object has, so the collector does not free it.
#pragma once

#include "sweeper/mark/scratch.hpp"
#include "sweeper/mark/words.hpp"
#include "sweeper/python/objects.hpp"

namespace reachscan::sweeper {

class Collectible {
 public:
  Collectible(const heaps::Space& space, BlockMap& blocks, const PythonObjects& objects,
              std::size_t unmarked)
      : space_(space), blocks_(blocks), items_(map_memory, unmarked), open_(map_memory, unmarked) {
    blocks.each_unmarked([&](uint64_t block) {
      items_.push({block, objects.in({block, blocks.end_of(block)}), 0, 0});
    });
  }

  // Marks everything that is not a leak. Returns what waits for the collector.
  heaps::Totals spare() {
    // Freed or dying objects may be in a list of the interpreter.
    flood(kInUse, 0, [](const Item& item) { return item.is_unfreed() == false; });
    flood(kOfObjects, kInUse, [](const Item& item) { return item.object != 0; });
    count_references();
    flood(kLeaked, kInUse, [](const Item& item) {
      return item.object == 0 ? (item.state & kOfObjects) == 0 : item.has_lost_references();
    });
    heaps::Totals waiting;
    for (const Item& item : items_) {
      if ((item.state & kLeaked) != 0) continue;
      blocks_.mark(item.block);
      if ((item.state & kInUse) == 0) waiting.add(blocks_.end_of(item.block) - item.block);
    }
    return waiting;
  }

 private:
  enum State : uint32_t {
    kOfObjects = 1,  // an object, or owned by one
    kInUse = 2,
    kLeaked = 4,
  };

  struct Item {
    uint64_t block;
    uint64_t object;  // in the block, 0 if there is none
    uint32_t state;
    uint32_t found;  // references to the object

    bool is_unfreed() const {
      if (object == 0) return true;
      uint32_t references = python_references(object);
      return references != 0 && references < kImmortal;
    }
    bool has_lost_references() const { return python_references(object) > found; }
  };

  // Sets a state on all items that `is_seed` selects and on everything they lead to, except items
  // in a state of `unless`.
  template <typename IsSeed>
  void flood(State state, uint32_t unless, IsSeed is_seed) {
    for (Item& seed : items_) {
      if (is_seed(seed)) enter(seed, state, unless);
      while (!open_.empty())
        each_target(*open_.pop(), [&](Item& target, uint64_t) { enter(target, state, unless); });
    }
  }

  void enter(Item& item, State state, uint32_t unless) {
    if ((item.state & (state | unless)) != 0) return;
    item.state |= state;
    open_.push(&item);
  }

  void count_references() {
    // The interpreter tags pointers in their low bits.
    constexpr uint64_t kTag = 7;
    for (Item& holder : items_) {
      if ((holder.state & kOfObjects) == 0) continue;
      each_target(holder, [](Item& target, uint64_t value) {
        if (target.object != 0 && (value & ~kTag) == target.object) ++target.found;
      });
    }
  }

  template <typename Visit>
  void each_target(const Item& from, Visit visit) {
    each_word(space_, from.block, blocks_.end_of(from.block), [&](uint64_t, uint64_t value) {
      uint64_t block = blocks_.block_of(value);
      if (block == 0 || blocks_.is_marked(block)) return;
      if (Item* target = find(block)) visit(*target, value);
    });
  }

  Item* find(uint64_t block) {
    std::size_t at = heaps::partition_point(items_.size(),
                                            [&](std::size_t i) { return items_[i].block < block; });
    return at < items_.size() && items_[at].block == block ? &items_[at] : nullptr;
  }

  const heaps::Space& space_;
  BlockMap& blocks_;
  heaps::List<Item> items_;  // unmarked blocks, sorted by address
  heaps::List<Item*> open_;
};

}  // namespace reachscan::sweeper
