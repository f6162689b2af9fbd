// The walker for pymalloc, CPython's allocator for blocks of up to 512 bytes: 3.9 to 3.14, except
// free-threaded builds. heaps/heap.hpp has the contract of a walker.
//
//   version         whether its objects are known
//   arenas          tables, arenas and pools, by structure
//
// It is used only on request. Otherwise the arenas are roots: whatever Python objects hold is in
// use. Its tables are blocks of another allocator, so this walker comes last.
//
// It is never drained: a thread that is allocating or freeing affects at most one pool, and a pool
// whose sums do not match stays a root.
#pragma once

#include "heaps/heap.hpp"
#include "heaps/pymalloc/arenas.hpp"
#include "heaps/pymalloc/version.hpp"

namespace reachscan::heaps::pymalloc {

class Walker {
 public:
  // The link to the next free block.
  static constexpr uint64_t kLinkBytes = 8;
  static constexpr bool kNeedsFine = true;

  Walker(const Space& space, const libc::Threads& threads, MapMemory map, bool wanted)
      : space_(space), threads_(threads), map_(map), wanted_(wanted) {}

  bool is_present() const { return wanted_; }
  static bool is_in(uint32_t) { return false; }
  static bool quiet(abi::QuiesceHint&) { return true; }
  static void describe(abi::QuiesceHint&) {}
  static bool interrupted(abi::QuiesceHint&) { return false; }

  Verdict enumerate(BlockMap& blocks, OnThreads, uint32_t first_arena) {
    if (is_unknown_python(space_)) return invalid(kUnknown, 0);
    Arenas arenas(space_, blocks, map_);
    if (arenas.empty()) return invalid(kNone, 0);
    uint64_t unsettled = arenas.unknown_entries();
    for (const Arena& arena : arenas) {
      uint32_t number = first_arena + static_cast<uint32_t>(arena_count_++);
      Verdict verdict = claim(arena, number, blocks, unsettled);
      if (!verdict.fine()) return verdict;
    }
    // Only one thread at a time can allocate and free, under the interpreter's lock.
    if (unsettled > threads_.running_count)
      return invalid("the pools of Python's allocator contradict themselves", arenas[0].first);
    return {};
  }

  std::size_t arena_count() const { return arena_count_; }
  static void write_name(char (&name)[kNameLength]) { __builtin_memcpy(name, "pymalloc", 9); }
  template <typename Visit>
  static void each_variable(Visit) {}
  static Warning warning() { return {}; }

  Totals totals;

 private:
  static constexpr const char* kNone =
      "Python objects were asked for, but no arena of CPython's allocator was found; free-threaded "
      "builds have another one, and with PYTHONMALLOC it is replaced or changed";

  static constexpr const char* kUnknown =
      "Python objects were asked for, but only those of CPython 3.9 to 3.14 are known";

  // Adjacent pools become one region, so that there are few.
  Verdict claim(const Arena& arena, uint32_t number, BlockMap& blocks, uint64_t& unsettled) {
    uint64_t free_pools, run = arena.first;
    bool adds_up = arena.find_free_pools(free_pools);
    unsettled += !adds_up;
    for (uint64_t i = 0, pool = arena.first; pool != arena.untaken; ++i, pool += arena.pool_bytes) {
      if (adds_up && (free_pools >> i & 1) != 0) {
        blocks.add_boundary(pool);
      } else if (!claim_pool(arena, pool, blocks)) {
        unsettled += load<uint32_t>(pool) != 0;
        if (!claim_run({run, pool}, number, blocks)) return refuse(run);
        run = pool + arena.pool_bytes;
      }
    }
    uint64_t end = adds_up ? arena.end : arena.untaken;
    if (adds_up && arena.untaken != arena.end) blocks.add_boundary(arena.untaken);
    return claim_run({run, end}, number, blocks) ? Verdict{} : refuse(run);
  }

  bool claim_pool(const Arena& arena, uint64_t start, BlockMap& blocks) {
    Pool pool;
    if (!pool.read(arena, start)) return false;
    blocks.add_boundary(start);
    uint64_t at = pool.first;
    for (uint64_t i = 0; i < pool.taken; ++i, at += pool.block_bytes) {
      if (pool.is_free(i)) {
        blocks.add_boundary(at);
      } else {
        blocks.add_live(at);
        totals.add(pool.block_bytes);
      }
    }
    if (at < start + arena.pool_bytes) blocks.add_boundary(at);
    return true;
  }

  static bool claim_run(Range run, uint32_t number, BlockMap& blocks) {
    if (run.start >= run.end) return true;
    if (blocks.region_in(run) != nullptr) return false;
    // A block of another allocator may start there.
    if (!blocks.is_live(run.end)) blocks.add_boundary(run.end);
    return blocks.add_region({run.start, run.end, wire::kPools, number, 0, 0});
  }

  static Verdict refuse(uint64_t address) {
    return invalid("an arena of Python's allocator overlaps memory of another one", address);
  }

  const Space& space_;
  const libc::Threads& threads_;
  MapMemory map_;
  bool wanted_;
  std::size_t arena_count_ = 0;
};

}  // namespace reachscan::heaps::pymalloc
