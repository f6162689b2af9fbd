// Free memory in the arenas of CPython's own allocator. The arenas are roots, but freed memory
// keeps nothing alive, although it still has its old contents. Memory whose bookkeeping is
// inconsistent, because a thread is allocating or freeing right now or for any other reason, stays
// a root.
#pragma once

#include "heaps/pymalloc/arenas.hpp"
#include "sweeper/blob/host.hpp"

namespace reachscan::sweeper {

using heaps::BlockMap;
using heaps::Range;
using heaps::Space;
using heaps::uint64_t;

class PythonArenas {
 public:
  PythonArenas(const Space& space, const BlockMap& blocks) : arenas_(space, blocks, map_memory) {}

  // Returns whether the interpreter allocates from memory at that address.
  bool contains(uint64_t address) const {
    std::size_t low = 0, high = arenas_.size();
    while (low < high) {
      std::size_t middle = (low + high) / 2;
      if (arenas_[middle].end <= address) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low < arenas_.size() && address >= arenas_[low].first;
  }

  // Calls visit(range) for memory that is certainly free.
  template <typename Visit>
  void each_free(Visit visit) const {
    for (const Arena& arena : arenas_) visit_arena(arena, visit);
  }

 private:
  using Arena = heaps::pymalloc::Arena;

  template <typename Visit>
  static void visit_arena(const Arena& arena, Visit visit) {
    uint64_t free_pools;
    bool adds_up = arena.find_free_pools(free_pools);
    for (uint64_t i = 0, pool = arena.first; pool != arena.untaken; ++i, pool += arena.pool_bytes) {
      if (!adds_up || (free_pools >> i & 1) == 0) {
        visit_pool(arena, pool, visit);
      } else {
        visit(Range{pool + heaps::pymalloc::kHeaderBytes, pool + arena.pool_bytes});
      }
    }
    if (adds_up && arena.untaken != arena.end) visit(Range{arena.untaken, arena.end});
  }

  template <typename Visit>
  static void visit_pool(const Arena& arena, uint64_t pool, Visit visit) {
    heaps::pymalloc::Pool found;
    if (!found.read(arena, pool)) return;
    uint64_t at = found.first;
    for (uint64_t i = 0; i < found.taken; ++i, at += found.block_bytes)
      if (found.is_free(i)) visit(Range{at, at + found.block_bytes});
    if (at < pool + arena.pool_bytes) visit(Range{at, pool + arena.pool_bytes});
  }

  heaps::pymalloc::Arenas arenas_;
};

}  // namespace reachscan::sweeper
