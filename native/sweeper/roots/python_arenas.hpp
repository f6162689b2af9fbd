// What is free in the arenas of CPython's own allocator (Objects/obmalloc.c). The arenas are roots,
// but what was freed there keeps nothing alive, although it still has the words of its last use.
//
//   table   descriptions of the arenas; a variable of the interpreter points to it
//   arena   256 KiB or 1 MiB from mmap; pools are taken from it, the lowest first
//   pool    4 or 16 KiB; blocks of one size are taken from it, the lowest first
//
// The proof is by sums: the blocks in use, which a pool counts, and those in its free list are all
// that were taken from it; an arena counts its free pools. Where a thread is taking or freeing just
// now, they do not add up. What does not add up, for that reason or another, stays a root.
#pragma once

#include "memory/block_map.hpp"
#include "sweeper/blob/host.hpp"
#include "sweeper/mark/words.hpp"

namespace reachscan::sweeper {

using heaps::BlockMap;
using heaps::load;
using heaps::Range;
using heaps::Space;
using heaps::uint32_t;
using heaps::uint64_t;
using heaps::word;

class PythonArenas {
 public:
  PythonArenas(const Space& space, const BlockMap& blocks)
      : space_(space), blocks_(blocks), arenas_(map_memory, kMostArenas) {
    uint64_t last = 0;  // variables side by side point to the same table
    for (const abi::Mapping& m : space_) {
      if (!Space::is_module_data(m)) continue;
      each_word(space_, m.start, m.end, [&](uint64_t, uint64_t value) {
        if (value == last || !may_be_table(value)) return;
        last = value;
        add_arenas(value);
      });
    }
    heaps::sort(arenas_, [](const Arena& a, const Arena& b) { return a.first < b.first; });
  }

  // Whether the interpreter allocates at that address.
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

  // Calls visit(range) for memory that is free for certain.
  template <typename Visit>
  void each_free(Visit visit) const {
    for (const Arena& arena : arenas_) visit_arena(arena, visit);
  }

 private:
  // struct arena_object
  static constexpr uint64_t kEntryBytes = 48, kNextPool = 8, kFreeCount = 16, kPoolCount = 20,
                            kFreePools = 24;
  static constexpr uint64_t kLeastEntries = 16;  // doubled when they do not suffice
  // struct pool_header
  static constexpr uint64_t kHeaderBytes = 48, kFreeBlock = 8, kNextInList = 16, kArenaIndex = 32,
                            kSizeClass = 36, kNextOffset = 40, kLastOffset = 44;
  static constexpr uint64_t kPools = 64;  // of an arena; one less if it does not begin at a pool's
  static constexpr uint64_t kPoolSizes[] = {4096, 16384};  // since 3.10 the larger
  static constexpr uint64_t kAlignments[] = {8, 16};       // since 3.7 the larger
  static constexpr uint64_t kMostBlocks = kPoolSizes[1] / kAlignments[0];

  static constexpr std::size_t kMostArenas = 1 << 16;  // the rest of more are roots as a whole

  struct Arena {
    uint64_t entry;
    uint64_t pool_bytes;
    uint64_t first, untaken, end;  // pools
    uint32_t index;
    uint32_t reserved;
  };

  // The blocks of a pool.
  struct Pool {
    uint64_t block_bytes, taken;
    uint64_t free[kMostBlocks / 64] = {};

    // False if it is free already.
    bool add_free(uint64_t block) {
      uint64_t bit = 1ull << block % 64;
      if ((free[block / 64] & bit) != 0) return false;
      free[block / 64] |= bit;
      return true;
    }
  };

  bool may_be_table(uint64_t value) const {
    if (!blocks_.may_point(value) || !blocks_.is_live(value)) return false;
    uint64_t entries = (blocks_.end_of(value) - value) / kEntryBytes;
    uint64_t used = kLeastEntries;
    while (2 * used <= entries) used *= 2;
    return entries >= used && entries - used < heaps::kPage / kEntryBytes;
  }

  void add_arenas(uint64_t table) {
    uint64_t count = (blocks_.end_of(table) - table) / kEntryBytes;
    for (uint32_t i = 0; i < count; ++i) {
      Arena arena{};
      if (find_arena(table + i * kEntryBytes, i, arena) && !arenas_.push(arena)) return;
    }
  }

  template <typename Visit>
  void visit_arena(const Arena& arena, Visit visit) const {
    uint64_t free_pools = 0;
    bool adds_up = find_free_pools(arena, free_pools);
    for (uint64_t i = 0, pool = arena.first; pool != arena.untaken; ++i, pool += arena.pool_bytes) {
      if (!adds_up || (free_pools >> i & 1) == 0) {
        visit_pool(arena, pool, visit);
      } else {
        visit(Range{pool + kHeaderBytes, pool + arena.pool_bytes});
      }
    }
    if (adds_up && arena.untaken != arena.end) visit(Range{arena.untaken, arena.end});
  }

  // An arena of which at least one pool was taken.
  bool find_arena(uint64_t entry, uint32_t index, Arena& arena) const {
    uint64_t start = word(entry);
    if (start == 0 || start % heaps::kPage != 0) return false;
    for (uint64_t pool_bytes : kPoolSizes) {
      uint64_t end = start + kPools * pool_bytes, first = heaps::align_up(start, pool_bytes);
      uint64_t pools = (end - first) / pool_bytes;
      arena = {entry, pool_bytes, first, word(entry + kNextPool), first + pools * pool_bytes,
               index, 0};
      if (load<uint32_t>(entry + kPoolCount) != pools || !space_.is_anonymous(start, end)) continue;
      if (arena.untaken <= first || arena.untaken > arena.end) continue;
      uint64_t block_bytes;
      if (arena.untaken % pool_bytes == 0 && is_pool(arena, first, block_bytes)) return true;
    }
    return false;
  }

  bool is_pool(const Arena& arena, uint64_t pool, uint64_t& block_bytes) const {
    block_bytes = arena.pool_bytes - load<uint32_t>(pool + kLastOffset);
    if (load<uint32_t>(pool + kArenaIndex) != arena.index) return false;
    uint64_t size_class = load<uint32_t>(pool + kSizeClass);
    for (uint64_t alignment : kAlignments)
      if (block_bytes == (size_class + 1) * alignment) return true;
    return false;
  }

  // Bit i: the pool i is free.
  static bool find_free_pools(const Arena& arena, uint64_t& free) {
    uint64_t count = (arena.end - arena.untaken) / arena.pool_bytes;
    for (uint64_t pool = word(arena.entry + kFreePools); pool != 0;
         pool = word(pool + kNextInList)) {
      uint64_t number = (pool - arena.first) / arena.pool_bytes;
      bool is_taken = pool >= arena.first && pool < arena.untaken;
      if (!is_taken || pool % arena.pool_bytes != 0 || (free >> number & 1) != 0) return false;
      if (load<uint32_t>(pool) != 0) return false;
      free |= 1ull << number;
      ++count;
    }
    return count == load<uint32_t>(arena.entry + kFreeCount);
  }

  template <typename Visit>
  void visit_pool(const Arena& arena, uint64_t pool, Visit visit) const {
    Pool found;
    if (!find_blocks(arena, pool, found)) return;
    uint64_t at = pool + kHeaderBytes;
    for (uint64_t i = 0; i < found.taken; ++i, at += found.block_bytes)
      if ((found.free[i / 64] >> i % 64 & 1) != 0) visit(Range{at, at + found.block_bytes});
    if (at < pool + arena.pool_bytes) visit(Range{at, pool + arena.pool_bytes});
  }

  bool find_blocks(const Arena& arena, uint64_t pool, Pool& found) const {
    uint64_t used = load<uint32_t>(pool), next = load<uint32_t>(pool + kNextOffset);
    if (used == 0 || !is_pool(arena, pool, found.block_bytes)) return false;
    if (next < kHeaderBytes || next > arena.pool_bytes) return false;
    found.taken = (next - kHeaderBytes) / found.block_bytes;
    if ((next - kHeaderBytes) % found.block_bytes != 0) return false;
    uint64_t free = 0;
    for (uint64_t at = word(pool + kFreeBlock); at != 0; at = word(at), ++free) {
      uint64_t offset = at - pool - kHeaderBytes, block = offset / found.block_bytes;
      bool is_block = at >= pool + kHeaderBytes && at < pool + next;
      if (!is_block || offset % found.block_bytes != 0 || !found.add_free(block)) return false;
    }
    return used + free == found.taken;
  }

  const Space& space_;
  const BlockMap& blocks_;
  heaps::List<Arena> arenas_;
};

}  // namespace reachscan::sweeper
