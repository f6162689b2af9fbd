// Takes out what the threads' caches hold: it is free, though it looks allocated. An exiting thread
// empties its cache and clears its arena, but one left behind by a fork could not.
#pragma once

#include "heaps/jemalloc/cache_place.hpp"

namespace reachscan::heaps::jemalloc {

constexpr uint64_t kMaxStackBytes = 1 << 19;

// Returns where a bin keeps the addresses of its blocks. Since 5.3, the used part of the stack
// starts at the head, and only the low bits of its end are kept; before, it ends at a pointer.
inline Range cached_in(uint64_t bin, const Layout& layout) {
  constexpr uint64_t kEndField = 20, kCountField = 4, kStackField = 16;
  if (!layout.split_caches) {
    uint64_t head = word(bin);
    return {head, head + ((load<uint16_t>(bin + kEndField) - head) & 0xffff)};
  }
  uint64_t end = word(bin + kStackField);
  return {end - 8ull * load<uint32_t>(bin + kCountField), end};
}

class ThreadCaches {
 public:
  ThreadCaches(const Space& space, const Instance& instance, Metadata& metadata, BlockMap& blocks,
               Totals& totals)
      : space_(space),
        instance_(instance),
        metadata_(metadata),
        blocks_(blocks),
        totals_(totals),
        place_(space, instance, metadata) {}

  Verdict drop_all(const libc::Threads& threads) {
    found = place_.find(threads);
    if (!found) return {};
    for (std::size_t t = 0; t < threads.running_count; ++t) {
      Cache cache = place_.of_thread(threads.running[t].thread_pointer);
      if (cache.arena == 0) continue;
      if (!is_consistent(cache))
        return invalid("a thread's cache of free blocks is not consistent", cache.small);
      drop(cache);
    }
    // The fork may have happened while the thread was using its cache.
    for (const libc::ExitedThread& thread : threads.ended) {
      Cache cache = place_.of_thread(thread.thread_pointer);
      if (cache.arena != 0 && is_consistent(cache)) drop(cache);
    }
    return {};
  }

  bool found = false;  // whether any thread has a cache

 private:
  // Calls visit(block, its size) until that returns false. Returns whether it never did.
  template <typename Visit>
  bool each_cached(const Cache& cache, Visit visit) const {
    for (unsigned number = 0; number < kMaxBins; ++number) {
      uint64_t bin = cache.bin(number);
      if (!space_.readable(bin, kBinBytes)) return false;
      Range cached = cached_in(bin, instance_.layout);
      if (cached.end == 0) break;
      if (cached.start % 8 != 0 || cached.end - cached.start > kMaxStackBytes ||
          !space_.readable(cached.start, cached.end - cached.start))
        return false;
      uint64_t size = size_of_class(number, instance_.quantum);
      for (uint64_t at = cached.start; at < cached.end; at += 8)
        if (!visit(word(at), size)) return false;
    }
    return true;
  }

  bool is_consistent(const Cache& cache) const {
    return each_cached(cache, [this](uint64_t block, uint64_t size) {
      return blocks_.is_live(block) && blocks_.ends_at(block, block + size);
    });
  }

  void drop(const Cache& cache) {
    each_cached(cache, [this](uint64_t block, uint64_t size) {
      // A block that occurs twice was freed twice.
      if (blocks_.is_live(block)) totals_.subtract(size);
      blocks_.drop_live(block);
      return true;
    });
    drop_stack(cached_in(cache.bin(0), instance_.layout).start);
  }

  // Until 5.3.0, the stacks of all bins are in a block that the allocator allocated for itself.
  void drop_stack(uint64_t inside) {
    if (metadata_.contains(inside)) return;
    for (uint64_t at = inside & ~7ull; inside - at < kMaxStackBytes; at -= 8) {
      if (!blocks_.may_point(at)) return;
      if (!blocks_.is_live(at)) continue;
      totals_.subtract(blocks_.end_of(at) - at);
      blocks_.drop_live(at);
      return;
    }
  }

  const Space& space_;
  const Instance& instance_;
  Metadata& metadata_;
  BlockMap& blocks_;
  Totals& totals_;
  CachePlace place_;
};

}  // namespace reachscan::heaps::jemalloc
