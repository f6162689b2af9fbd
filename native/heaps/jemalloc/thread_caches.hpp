// Finds every thread's cache of free blocks (tcache_t). It is a thread-local variable, so it is at
// the same distance from the thread pointer in all threads. It is recognised by pointers from one
// part of it to another, and to an arena in the allocator's own memory. An exiting thread empties
// its cache and clears its arena, but one left behind by a fork could not.
#pragma once

#include "heaps/jemalloc/metadata.hpp"
#include "libc/static_tls.hpp"

namespace reachscan::heaps::jemalloc {

constexpr uint64_t kBinBytes = 24;
constexpr unsigned kMaxBins = 80;  // those after the last one in use are zero
constexpr uint64_t kMaxStackBytes = 1 << 19;

// Bins are in class order; before 5.3 those of large blocks are separate.
struct Cache {
  uint64_t arena = 0;
  uint64_t small = 0, large = 0;
  unsigned small_count = 0;

  uint64_t bin(unsigned number) const {
    return number < small_count ? small + number * kBinBytes
                                : large + (number - small_count) * kBinBytes;
  }
};

// Since 5.3: a pointer to tcache_slow_t, followed by the bins. That structure starts with the links
// of two lists, a pointer to the bins, and one to the arena.
inline Cache cache_from_53(uint64_t at, Range tls) {
  constexpr uint64_t kBinsField = 32, kArenaField = 40;
  uint64_t other = word(at);
  if (other % 8 != 0 || !tls.contains(other) || tls.end - other < kArenaField + 8 ||
      word(other + kBinsField) != at + 8)
    return {};
  return {word(other + kArenaField), at + 8, 0, kMaxBins};
}

// Before: pointers to the bins of small and of large blocks, and to the arena, are between these.
inline Cache cache_until_52(uint64_t at, Range tls, unsigned small_count) {
  uint64_t small = word(at);
  if (small % 8 != 0 || small < tls.start || small >= at || at + 24 > tls.end) return {};
  constexpr uint64_t kBetween = 128;
  uint64_t large = word(at + 8), bins = small_count * kBinBytes;
  // The links of all caches and, in 5.2, of all threads follow the small bins.
  bool follows = at - small == bins + 32 || at - small == bins + 56;
  if (!follows || large <= at || large - at > kBetween) return {};
  return {word(at + 16), small, large, small_count};
}

inline Cache cache_at(uint64_t at, Range tls, const Instance& instance) {
  if (!instance.layout.split_caches) return cache_from_53(at, tls);
  return cache_until_52(at, tls, small_classes(instance.tree, instance.quantum));
}

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
      : space_(space), instance_(instance), metadata_(metadata), blocks_(blocks), totals_(totals) {}

  Verdict drop_all(const libc::Threads& threads) {
    if (!find_distance(threads)) return {};
    for (std::size_t t = 0; t < threads.running_count; ++t) {
      Cache cache = of_thread(threads.running[t].thread_pointer);
      if (cache.arena == 0) continue;
      if (!is_consistent(cache))
        return invalid("a thread's cache of free blocks is not consistent", cache.small);
      drop(cache);
    }
    // The fork may have happened while the thread was using its cache.
    for (const libc::ExitedThread& thread : threads.ended) {
      Cache cache = of_thread(thread.thread_pointer);
      if (cache.arena != 0 && is_consistent(cache)) drop(cache);
    }
    return {};
  }

 private:
  bool find_distance(const libc::Threads& threads) {
    for (std::size_t t = 0; t < threads.running_count; ++t)
      if (find_in(threads.running[t].thread_pointer, libc::kTypicalTls)) return true;
    for (std::size_t t = 0; t < threads.running_count && t < libc::kMaxThreadsForLargeTls; ++t)
      if (find_in(threads.running[t].thread_pointer, libc::kLargestTls)) return true;
    return false;
  }

  bool find_in(uint64_t thread_pointer, uint64_t reach) {
    Range tls = libc::readable_tls(space_, thread_pointer, reach);
    for (uint64_t at = space_.skip_absent(tls.start); at + 24 <= tls.end; at += 8) {
      if (!is_cache(cache_at(at, tls, instance_))) continue;
      distance_ = arch::tls_distance(thread_pointer, at);
      return true;
    }
    return false;
  }

  bool is_cache(const Cache& cache) const {
    return cache.arena != 0 && metadata_.contains(cache.arena);
  }

  // Returns one without an arena if the thread has no cache now.
  Cache of_thread(uint64_t thread_pointer) const {
    if (thread_pointer == 0) return {};
    Range tls = libc::readable_tls(space_, thread_pointer, distance_ + libc::kTypicalTls);
    uint64_t at = arch::tls_variable(thread_pointer, distance_);
    if (at < tls.start || at + 24 > tls.end) return {};
    Cache cache = cache_at(at, tls, instance_);
    return is_cache(cache) ? cache : Cache{};
  }

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
  uint64_t distance_ = 0;
};

}  // namespace reachscan::heaps::jemalloc
