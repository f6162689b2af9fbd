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
  static constexpr uint64_t kMostBytes = heaps::pymalloc::kMostBytes;  // of a block there

  PythonArenas(const Space& space, const BlockMap& blocks) : arenas_(space, blocks, map_memory) {}

  bool empty() const { return arenas_.empty(); }

  // Returns whether the interpreter allocates from memory at that address.
  bool contains(uint64_t address) const { return arena_around(address) != nullptr; }

  // Returns the block, free or not, that contains an address; an empty range if there is none.
  Range block_around(uint64_t address) const {
    const Arena* arena = arena_around(address);
    if (arena == nullptr || address >= arena->untaken) return {};
    uint64_t pool = address / arena->pool_bytes * arena->pool_bytes, block_bytes;
    uint64_t first = pool + heaps::pymalloc::kHeaderBytes;
    if (address < first || !arena->is_pool(pool, block_bytes)) return {};
    uint64_t block = address - (address - first) % block_bytes;
    bool is_whole = block + block_bytes <= pool + arena->pool_bytes;
    return is_whole ? Range{block, block + block_bytes} : Range{};
  }

  // Calls visit(range) for each block that was ever taken, free by now or not.
  template <typename Visit>
  void each_block(Visit visit) const {
    for (const Arena& arena : arenas_) {
      for (uint64_t pool = arena.first, bytes; pool != arena.untaken; pool += arena.pool_bytes) {
        uint64_t end = pool + heaps::load<uint32_t>(pool + heaps::pymalloc::kNextOffset);
        if (!arena.is_pool(pool, bytes) || end > pool + arena.pool_bytes) continue;
        for (uint64_t at = pool + heaps::pymalloc::kHeaderBytes; at + bytes <= end; at += bytes)
          visit(Range{at, at + bytes});
      }
    }
  }

  // Calls visit(range) for memory that is certainly free.
  template <typename Visit>
  void each_free(Visit visit) const {
    for (const Arena& arena : arenas_) visit_arena(arena, visit);
  }

 private:
  using Arena = heaps::pymalloc::Arena;

  const Arena* arena_around(uint64_t address) const {
    std::size_t at = heaps::partition_point(
        arenas_.size(), [&](std::size_t i) { return arenas_[i].end <= address; });
    bool is_inside = at < arenas_.size() && address >= arenas_[at].first;
    return is_inside ? &arenas_[at] : nullptr;
  }

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
