// The walker for jemalloc, 5.1 to 5.3. heaps/heap.hpp has its contract.
//
//   layout          size classes, extents, the tree that finds them
//   metadata        the mappings in which the allocator keeps its own structures
//   find_tree       the root of the tree, by structure
//   tree            iterates over the tree
//   padding         whether large blocks have an extra page
//   extents         slabs with a bitmap of free slots, large blocks, free memory
//   cache_place     where each thread has its cache
//   thread_caches   free, though they look allocated
//   quiet           where its code is
#pragma once

#include "heaps/instances.hpp"
#include "heaps/jemalloc/extents.hpp"
#include "heaps/jemalloc/quiet.hpp"
#include "heaps/jemalloc/thread_caches.hpp"

namespace reachscan::heaps::jemalloc {

class Walker : public Instances<Instance, kMaxInstances> {
 public:
  // Lists of free blocks are elsewhere.
  static constexpr uint64_t kLinkBytes = 0;
  static constexpr bool kNeedsFine = true;

  Walker(const Space& space, const libc::Threads& threads, MapMemory map)
      : Instances(space, threads, [&](auto& found) { return Search(space).find(found); }),
        map_(map) {}

  Verdict enumerate(BlockMap& blocks, OnThreads on_threads, uint32_t first_arena) {
    for (std::size_t i = 0; i < count_; ++i) {
      Metadata metadata(map_);
      Extents extents(space_, instances_[i], metadata, first_arena + arenas_,
                      {blocks, totals, on_threads});
      Verdict verdict = extents.claim_all();
      arenas_ += extents.arenas;
      if (!verdict.fine()) return verdict;
      ThreadCaches caches(space_, instances_[i], metadata, blocks, totals);
      verdict = caches.drop_all(threads_);
      if (!verdict.fine()) return verdict;
      no_caches_ = no_caches_ || !caches.found;
    }
    return {};
  }

  // The program may also have switched caches off, or its last thread with one may have ended.
  Warning warning() const {
    if (!no_caches_ || totals.blocks == 0) return {};
    return {kIncompleteFreeBlocks,
            "no thread's cache of free blocks was found in jemalloc: if threads have such caches, "
            "blocks in them count as allocated, and what they point to as in use; all leaks are "
            "only possible ones"};
  }

  std::size_t arena_count() const { return arenas_; }

  void write_name(char (&name)[kNameLength]) const {
    __builtin_memcpy(name, instances_[0].layout.name, sizeof instances_[0].layout.name);
  }

  template <typename Visit>
  void each_variable(Visit visit) const {
    for (std::size_t i = 0; i < count_; ++i)
      visit(Range{instances_[i].root, instances_[i].root + instances_[i].tree.node_bytes()});
  }

 private:
  MapMemory map_;
  uint32_t arenas_ = 0;
  bool no_caches_ = false;  // of an instance
};

}  // namespace reachscan::heaps::jemalloc
