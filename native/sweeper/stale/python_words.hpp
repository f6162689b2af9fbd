// Words in objects of Python that hold nothing, and behind what lists and dictionaries contain.
//
//   str, bytes            characters, and what follows them
//   str                   the kind of text: the rest of that word is never written
//   other objects         what follows them
//   list                  behind the last item (python_lists.hpp)
//   keys of a dict        behind the entries (python_keys.hpp)
//
// All but large objects are in arenas of the interpreter's own allocator, which are roots.
#pragma once

#include <optional>

#include "sweeper/mark/spin_lock.hpp"
#include "sweeper/python/objects.hpp"
#include "sweeper/roots/roots.hpp"
#include "sweeper/search/stretches.hpp"
#include "sweeper/stale/python_keys.hpp"
#include "sweeper/stale/python_lists.hpp"

namespace reachscan::sweeper {

class PythonWords {
 public:
  PythonWords(const heaps::Space& space, const heaps::BlockMap& blocks, Targets& targets)
      : space_(space),
        blocks_(blocks),
        targets_(targets),
        keys_(space, blocks, targets),
        objects_(space) {}

  // Searches marked blocks and the interpreter's arenas; of a large heap, samples.
  void find(const Roots& roots) {
    if (heaps::kWord != 8 || roots.python_arenas().empty()) return;
    arenas_ = &roots.python_arenas();
    lists_.emplace(space_, blocks_, targets_);
    arenas_->each_block([this](Range block) { look_at(block); });
    visit_marked_samples(blocks_, [this](Range block) {
      keys_.look_at(block);
      if (is_large(block)) look_at(block);
    });
    lists_->sort();
  }

  // Returns whether the word is in an object, or behind the items of a list or the entries of keys,
  // and holds nothing. `owner` is 0 in an arena.
  bool contain(uint64_t owner, uint64_t slot) const {
    if (heaps::kWord != 8 || arenas_ == nullptr) return false;
    if (owner != 0 && (lists_->end_before(owner, slot) || keys_.end_before(owner, slot)))
      return true;
    Range block = owner != 0 ? Range{owner, blocks_.end_of(owner)} : arenas_->block_around(slot);
    if ((owner != 0 && !is_large(block)) || !PythonObjects::may_be_in(block)) return false;
    SpinLock::Guard guard(lock_);
    uint64_t object = object_in(block);
    return object != 0 && objects_.is_unused(object, slot, block);
  }

 private:
  // A small block of malloc() that looks like an object is something else.
  static bool is_large(Range block) { return block.end - block.start > PythonArenas::kMostBytes; }

  // Returns the object in a block, 0 if there is none in use: a dead one has no references.
  uint64_t object_in(Range block) const {
    uint64_t object = objects_.in(block);
    return object != 0 && python_references(object) != 0 ? object : 0;
  }

  [[gnu::noinline]] void look_at(Range block) {
    if (!PythonObjects::may_be_in(block)) return;
    SpinLock::Guard guard(lock_);
    uint64_t object = object_in(block);
    if (object == 0) return;
    if (objects_.is_list(object)) lists_->consider(object);
    objects_.each_unused_word(object, block,
                              [this](uint64_t slot) { targets_.add(heaps::word(slot)); });
  }

  const heaps::Space& space_;
  const heaps::BlockMap& blocks_;
  Targets& targets_;
  const PythonArenas* arenas_ = nullptr;  // null: there are none
  const PythonKeys keys_;
  std::optional<PythonLists> lists_;
  PythonObjects objects_;
  mutable SpinLock lock_;
};

}  // namespace reachscan::sweeper
