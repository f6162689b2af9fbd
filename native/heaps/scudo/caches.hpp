// The threads' caches of free blocks: a thread-local variable, and one in the module's data for
// threads that are about to end. Headers say which blocks are free. But what a cache lists, or has
// listed, are addresses of slots, and one of these looks like the end of the block before it.
#pragma once

#include "heaps/scudo/layout.hpp"
#include "libc/static_tls.hpp"

namespace reachscan::heaps::scudo {

// Since LLVM 16, bins are aligned.
constexpr uint64_t kBinBytes = 240, kAlignedBinBytes = 256;
constexpr uint64_t kSizeField = 8;
constexpr uint64_t kCacheAlignment = 64;
// From the thread pointer to the far end of a cache; libraries may have variables in between.
constexpr uint64_t kCacheReach = 1 << 16;
// From the descriptions of classes to the end of the cache for ending threads.
constexpr uint64_t kOwnCacheReach = 1 << 15;

// Each bin contains the size of its blocks.
inline bool is_cache(uint64_t at, uint64_t bin_bytes) {
  for (unsigned number = 1; number < kClasses; ++number)
    if (word(at + number * bin_bytes + kSizeField) != size_of_class(number)) return false;
  return true;
}

template <typename Visit>
void each_cache_in(Range memory, Visit visit) {
  for (uint64_t at = align_up(memory.start, kCacheAlignment); at < memory.end;
       at += kCacheAlignment)
    for (uint64_t bin_bytes : {kBinBytes, kAlignedBinBytes})
      if (memory.end - at >= kClasses * bin_bytes && is_cache(at, bin_bytes))
        visit(Range{at, at + kClasses * bin_bytes});
}

template <typename Visit>
void each_cache(const Space& space, const libc::Threads& threads, const Instance& instance,
                Visit visit) {
  uint64_t end = instance.classes + kOwnCacheReach;
  each_cache_in({instance.classes, end < instance.data.end ? end : instance.data.end}, visit);
  for (std::size_t t = 0; t < threads.running_count; ++t)
    each_cache_in(libc::readable_tls(space, threads.running[t].thread_pointer, kCacheReach), visit);
}

}  // namespace reachscan::heaps::scudo
