// Marked blocks that words lead to which certainly hold nothing, and the blocks that have such
// words. Each rule that knows such words adds its own.
#pragma once

#include "memory/block_map.hpp"
#include "sweeper/blob/host.hpp"
#include "sweeper/mark/hash.hpp"
#include "sweeper/mark/scratch.hpp"
#include "sweeper/mark/spin_lock.hpp"
#include "sweeper/mark/words.hpp"

namespace reachscan::sweeper {

class Targets {
 public:
  // Requests memory, which only the first thread may.
  Targets(const heaps::Space& space, const heaps::BlockMap& blocks)
      : space_(space), blocks_(blocks), found_(map_memory, kMost) {}

  // Adds the marked block that the word points into. Returns false if there is none. When there is
  // no room for more, the remaining words keep their targets alive. Thread-safe.
  bool add(uint64_t value) {
    return add_if(value, [] { return true; });
  }

  // The same, unless the word turns out to hold something.
  template <typename IsStale>
  bool add_if(uint64_t value, IsStale is_stale) {
    uint64_t target = blocks_.block_of(value);
    if (target == 0 || !blocks_.is_marked(target) || !is_stale()) return false;
    enter(target);
    return true;
  }

  // Adds what the words of a part of a block lead to, which hold nothing wherever that is, and
  // notes the block as their owner. Thread-safe.
  void add_unused(uint64_t owner, heaps::Range part) {
    each_word(space_, heaps::align_up(part.start, heaps::kWord), part.end,
              [&](uint64_t, uint64_t value) {
                if (add(value)) note_owner(owner);
              });
  }

  // Returns whether the block was probably noted.
  bool may_be_owner(uint64_t block) const { return owners_[owner_slot(block)] != 0; }
  bool has_owners() const { return has_owners_; }

  bool empty() const { return found_.empty(); }

  // Called once, after all calls to add().
  void sort() {
    heaps::sort(found_);
    heaps::remove_repeats(found_);
  }

  // Sorted by address after sort().
  const heaps::List<uint64_t>& blocks() const { return found_; }

 private:
  static constexpr std::size_t kMost = 1 << 18;
  static constexpr unsigned kOwnerBits = 18;

  static uint64_t owner_slot(uint64_t owner) { return mixed(owner, 0) >> (64 - kOwnerBits); }

  void note_owner(uint64_t owner) {
    __atomic_store_n(&owners_[owner_slot(owner)], 1, __ATOMIC_RELAXED);
    __atomic_store_n(&has_owners_, true, __ATOMIC_RELAXED);
  }

  [[gnu::noinline]] void enter(uint64_t target) {
    SpinLock::Guard guard(lock_);
    found_.push(target);
  }

  const heaps::Space& space_;
  const heaps::BlockMap& blocks_;
  heaps::List<uint64_t> found_;
  Scratch<uint8_t> owners_{1u << kOwnerBits};  // 1: a block with that hash was noted
  bool has_owners_ = false;
  SpinLock lock_;
};

}  // namespace reachscan::sweeper
