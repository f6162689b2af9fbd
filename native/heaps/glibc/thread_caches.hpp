// Finds every thread's tcache. The pointer to it is a thread-local variable of the library, so it
// is at the same distance from the thread pointer in all threads; a vote determines the distance.
// An exiting thread empties its cache, but one left behind by a fork could not.
#pragma once

#include "heaps/glibc/free_lists.hpp"
#include "libc/static_tls.hpp"
#include "libc/threads.hpp"

namespace reachscan::heaps::glibc {

using libc::kLargestTls;
using libc::kTypicalTls;
using libc::readable_tls;
constexpr unsigned kOffsets = kLargestTls / kWord;
// The weight of a cache that contains chunks: an empty one may be any block of zeros.
constexpr uint32_t kFilled = 1000;

struct CacheFormat {
  CacheShape shape;
  Links links;
};

constexpr unsigned kFormats = 4;

inline CacheFormat cache_format(unsigned index) {
  switch (index) {
    case 0:
      return {kCacheFrom242, Links::kMangled};
    case 1:
      return {kCacheFrom230, Links::kMangled};
    case 2:
      return {kCacheFrom230, Links::kPlain};
    default:
      return {kCacheFrom226, Links::kPlain};
  }
}

struct CachePlan {
  bool found = false;
  CacheFormat format{};
  uint64_t offset = 0;  // distance of the pointer from the thread pointer
};

struct CacheVotes {
  uint32_t votes[kFormats][kOffsets];
};

inline void vote(const Space& space, const BlockMap& blocks, uint64_t thread_pointer,
                 uint64_t reach, CacheVotes& votes, Budget& budget) {
  Range tls = readable_tls(space, thread_pointer, reach);
  for (uint64_t at = space.skip_absent(tls.start); at < tls.end; at += kWord) {
    uint64_t cache = word(at);
    if (!blocks.is_live(cache)) continue;
    for (unsigned f = 0; f < kFormats; ++f) {
      CacheFormat format = cache_format(f);
      if (!has_cache_size(blocks, cache, format.shape)) continue;
      CacheCheck check = check_cache(blocks, cache, format.shape, format.links, budget);
      if (!check.valid) continue;
      votes.votes[f][arch::tls_distance(thread_pointer, at) / kWord - 1] +=
          check.cached > 0 ? kFilled : 1;
    }
  }
}

inline CachePlan plan_within(const Space& space, const BlockMap& blocks,
                             const libc::Threads& threads, uint64_t reach, uint32_t least,
                             CacheVotes& votes, Budget& budget) {
  __builtin_memset(&votes, 0, sizeof votes);
  for (std::size_t t = 0; t < threads.running_count; ++t)
    vote(space, blocks, threads.running[t].thread_pointer, reach, votes, budget);
  // They outvote a thread that finds another's cache below its own memory.
  for (const libc::ExitedThread& thread : threads.ended)
    vote(space, blocks, thread.thread_pointer, reach, votes, budget);
  CachePlan plan;
  uint32_t best = least - 1;
  for (unsigned f = 0; f < kFormats; ++f) {
    for (unsigned i = 0; i < reach / kWord; ++i) {
      if (votes.votes[f][i] <= best) continue;
      best = votes.votes[f][i];
      plan = {true, cache_format(f), (i + 1) * uint64_t{kWord}};
    }
  }
  return plan;
}

// Returns where the caches are, if at least `least` votes agree.
inline CachePlan plan_caches(const Space& space, const BlockMap& blocks,
                             const libc::Threads& threads, uint32_t least, CacheVotes& votes,
                             Budget& budget) {
  CachePlan plan = plan_within(space, blocks, threads, kTypicalTls, least, votes, budget);
  if (plan.found) return plan;
  libc::Threads some{threads.running, threads.running_count, {}, {}};
  if (some.running_count > libc::kMaxThreadsForLargeTls)
    some.running_count = libc::kMaxThreadsForLargeTls;
  return plan_within(space, blocks, some, kLargestTls, kFilled, votes, budget);
}

inline void drop_cache(BlockMap& blocks, Totals& totals, uint64_t cache,
                       const CacheFormat& format) {
  for (unsigned bin = 0; bin < format.shape.bins; ++bin)
    drop_list(blocks, totals, word(cache + format.shape.entries + uint64_t{kWord} * bin),
              format.links);
  drop_block(blocks, totals, cache);
}

// Returns the cache of the thread with this thread pointer, 0 if it has none: no cache yet, or the
// library's placeholder for none.
inline uint64_t cache_of(const Space& space, const BlockMap& blocks, uint64_t thread_pointer,
                         const CachePlan& plan) {
  uint64_t at = arch::tls_variable(thread_pointer, plan.offset);
  if (thread_pointer == 0 || !space.readable(at, kWord)) return 0;
  return blocks.is_live(word(at)) ? word(at) : 0;
}

inline bool is_consistent(const BlockMap& blocks, uint64_t cache, const CacheFormat& format,
                          Budget& budget) {
  return has_cache_size(blocks, cache, format.shape) &&
         check_cache(blocks, cache, format.shape, format.links, budget).valid;
}

// Removes the caches and their contents from the live blocks.
inline Verdict drop_caches(const Space& space, BlockMap& blocks, Totals& totals,
                           const libc::Threads& threads, const CachePlan& plan, Budget& budget) {
  for (std::size_t t = 0; t < threads.running_count; ++t) {
    uint64_t cache = cache_of(space, blocks, threads.running[t].thread_pointer, plan);
    if (cache == 0) continue;
    if (!is_consistent(blocks, cache, plan.format, budget))
      return invalid("a thread's cache of free chunks is not consistent", cache);
    drop_cache(blocks, totals, cache, plan.format);
  }
  // The fork may have happened while the thread was using its cache.
  for (const libc::ExitedThread& thread : threads.ended) {
    uint64_t cache = cache_of(space, blocks, thread.thread_pointer, plan);
    if (cache != 0 && is_consistent(blocks, cache, plan.format, budget))
      drop_cache(blocks, totals, cache, plan.format);
  }
  return {};
}

}  // namespace reachscan::heaps::glibc
