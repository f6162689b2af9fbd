// Finds every thread's tcache. The pointer to it is a thread-local variable of the library, so it
// is at the same distance from the thread pointer in all threads; a vote determines the distance.
// Each cache votes once for a distance, whoever has a pointer to it there: what was the stack of an
// exited thread still names its cache, which may be another thread's by now, and all such threads
// have the pointer in the same place. An exiting thread empties its cache, but one left behind by a
// fork could not.
#pragma once

#include "heaps/glibc/free_lists.hpp"
#include "libc/static_tls.hpp"
#include "libc/threads.hpp"

namespace reachscan::heaps::glibc {

using libc::kLargestTls;
using libc::kTypicalTls;
using libc::readable_tls;
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

// A block that may be a cache, and where a thread has a pointer to it.
struct Candidate {
  uint64_t distance;  // from the thread pointer
  uint64_t block;

  bool operator==(const Candidate& other) const {
    return distance == other.distance && block == other.block;
  }
};

constexpr std::size_t kMaxCandidates = 1 << 20;

inline bool may_be_cache(const BlockMap& blocks, uint64_t block) {
  for (unsigned f = 0; f < kFormats; ++f)
    if (has_cache_size(blocks, block, cache_format(f).shape)) return true;
  return false;
}

inline void find_candidates(const Space& space, const BlockMap& blocks, uint64_t thread_pointer,
                            uint64_t reach, List<Candidate>& candidates, Budget& budget) {
  Range tls = readable_tls(space, thread_pointer, reach);
  for (uint64_t at = space.skip_absent(tls.start); at < tls.end; at += kWord) {
    if (!may_be_cache(blocks, word(at))) continue;
    if (!candidates.push({arch::tls_distance(thread_pointer, at), word(at)})) budget.exhaust();
  }
}

struct Votes {
  uint32_t of_format[kFormats];
};

inline void vote(const BlockMap& blocks, uint64_t cache, Votes& votes, Budget& budget) {
  for (unsigned f = 0; f < kFormats; ++f) {
    CacheFormat format = cache_format(f);
    if (!has_cache_size(blocks, cache, format.shape)) continue;
    CacheCheck check = check_cache(blocks, cache, format.shape, format.links, budget);
    if (check.valid) votes.of_format[f] += check.cached > 0 ? kFilled : 1;
  }
}

// Returns the distance with most votes, the shortest of several.
inline CachePlan elect(const BlockMap& blocks, List<Candidate>& candidates, uint32_t least,
                       Budget& budget) {
  sort(candidates, [](const Candidate& a, const Candidate& b) {
    return a.distance != b.distance ? a.distance < b.distance : a.block < b.block;
  });
  CachePlan plan;
  Votes votes{};
  uint32_t best = least - 1;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    if (i == 0 || candidates[i - 1].distance != candidate.distance) votes = {};
    if (i > 0 && candidates[i - 1] == candidate) continue;
    vote(blocks, candidate.block, votes, budget);
    for (unsigned f = 0; f < kFormats; ++f) {
      if (votes.of_format[f] <= best) continue;
      best = votes.of_format[f];
      plan = {true, cache_format(f), candidate.distance};
    }
  }
  return plan;
}

inline CachePlan plan_within(const Space& space, const BlockMap& blocks,
                             const libc::Threads& threads, uint64_t reach, uint32_t least,
                             List<Candidate>& candidates, Budget& budget) {
  candidates.clear();
  for (std::size_t t = 0; t < threads.running_count; ++t)
    find_candidates(space, blocks, threads.running[t].thread_pointer, reach, candidates, budget);
  for (const libc::ExitedThread& thread : threads.ended)
    find_candidates(space, blocks, thread.thread_pointer, reach, candidates, budget);
  return elect(blocks, candidates, least, budget);
}

// Returns where the caches are, if at least `least` votes agree.
inline CachePlan plan_caches(const Space& space, const BlockMap& blocks,
                             const libc::Threads& threads, uint32_t least,
                             List<Candidate>& candidates, Budget& budget) {
  CachePlan plan = plan_within(space, blocks, threads, kTypicalTls, least, candidates, budget);
  if (plan.found) return plan;
  libc::Threads some{threads.running, threads.running_count, {}, {}};
  if (some.running_count > libc::kMaxThreadsForLargeTls)
    some.running_count = libc::kMaxThreadsForLargeTls;
  return plan_within(space, blocks, some, kLargestTls, kFilled, candidates, budget);
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
