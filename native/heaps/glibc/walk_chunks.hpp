// Walks a run of adjacent chunks. What is allocated is told by the next chunk's PREV_INUSE bit; a
// free chunk must repeat its size at its end, which catches a walk that left the rails.
#pragma once

#include "heaps/glibc/layout.hpp"

namespace reachscan::heaps::glibc {

struct Run {
  bool valid = false;
  bool reached_top = false;
  uint64_t end = 0;  // behind the last chunk: behind top, or behind the fenceposts
  Totals totals;
  uint64_t failed_at = 0;
};

// A run that was cut (by foreign use of brk, or a full heap) is closed by two small headers.
inline bool closed_by_fenceposts(uint64_t chunk, uint64_t limit) {
  if (chunk + 2 * kFencepost > limit) return false;
  uint64_t second = raw_size(chunk + kFencepost);
  return second == (kFencepost | kPrevInUse) || second == (0 | kPrevInUse);
}

// Walks from the chunk at `start` to `top` or to fenceposts, below `limit`, calling
// visit(user address, in_use) for each chunk.
template <typename Visit>
Run walk_run(uint64_t start, uint64_t limit, uint64_t top, Visit visit) {
  Run run;
  uint64_t chunk = start;
  for (;;) {
    run.failed_at = chunk;
    if (chunk % kGranule != 0 || chunk + kHeader > limit) return run;
    uint64_t size = chunk_size(chunk);
    if (chunk == top) {
      if (size < kHeader || size > limit - chunk) return run;
      visit(chunk + kHeader, false);
      run.valid = run.reached_top = true;
      run.end = chunk + size;
      return run;
    }
    if (size == kFencepost) {
      if (!closed_by_fenceposts(chunk, limit)) return run;
      visit(chunk + kHeader, false);
      run.valid = true;
      run.end = chunk + 2 * kFencepost;
      return run;
    }
    if (size < kMinChunk || size % kGranule != 0 || size > limit - chunk - kHeader) return run;
    uint64_t next = chunk + size;
    bool in_use = (raw_size(next) & kPrevInUse) != 0;
    if (!in_use && word(next) != size) return run;
    visit(chunk + kHeader, in_use);
    if (in_use) run.totals.add(size - 8);
    chunk = next;
  }
}

inline Run probe_run(uint64_t start, uint64_t limit, uint64_t top) {
  return walk_run(start, limit, top, [](uint64_t, bool) {});
}

// Walks for good: the blocks go into the map and the region is claimed.
inline Run claim_run(uint64_t start, uint64_t limit, uint64_t top, Region region,
                     BlockMap& blocks) {
  Run run = walk_run(start, limit, top, [&](uint64_t user, bool in_use) {
    if (in_use) {
      blocks.add_live(user);
    } else {
      blocks.add_boundary(user);
    }
  });
  if (!run.valid) return run;
  if (region.end < run.end) region.end = run.end;
  blocks.add_boundary(align_up(region.end, kGranule));
  if (!blocks.regions.push(region)) run.valid = false;
  return run;
}

}  // namespace reachscan::heaps::glibc
