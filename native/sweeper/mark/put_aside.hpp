// Words that look like pointers but may have been left behind by a former use of their memory
// (leftover.hpp, dense_maps.hpp). Marking does not follow them; blocks that only they lead to are
// possible leaks.
#pragma once

#include "memory/block_map.hpp"
#include "sweeper/blob/host.hpp"
#include "sweeper/mark/spin_lock.hpp"

namespace reachscan::sweeper {

class DeferredWords {
 public:
  explicit DeferredWords(const heaps::BlockMap& blocks)
      : blocks_(blocks), values_(map_memory, kMaxValues) {}

  // Returns false if there is no room. Thread-safe.
  bool add(uint64_t value) {
    uint64_t block = blocks_.block_of(value);
    if (block == 0 || blocks_.is_marked(block)) return true;
    SpinLock::Guard guard(lock_);
    return values_.push(value);
  }

  // Calls visit(block, value) for values that point to blocks which are still unmarked.
  template <typename Visit>
  void each_unmarked(Visit visit) const {
    for (uint64_t value : values_) {
      uint64_t block = blocks_.block_of(value);
      if (!blocks_.is_marked(block)) visit(block, value);
    }
  }

 private:
  static constexpr std::size_t kMaxValues = 1 << 20;

  const heaps::BlockMap& blocks_;
  heaps::List<uint64_t> values_;
  SpinLock lock_;
};

}  // namespace reachscan::sweeper
