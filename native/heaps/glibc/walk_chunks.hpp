// Walks a run of adjacent chunks. What is allocated is told by the next chunk's PREV_INUSE bit; a
// free chunk must repeat its size at its end, which catches a walk that left the rails.
#pragma once

#include "heaps/glibc/layout.hpp"
#include "heaps/near_cluster.hpp"

namespace reachscan::heaps::glibc {

constexpr uint64_t kAllChunks = ~0ull;

struct Run {
  bool valid = false;
  bool reached_top = false;
  uint64_t end = 0;  // behind the last chunk: behind top, or behind the fenceposts
  Totals totals;
  uint64_t chunks = 0;
  uint64_t failed_at = 0;
};

// A run that was cut is closed by small headers: by two of 16 bytes where someone else moved the
// break; in a full heap by one of 16 bytes, or of 32 if no more was left, and one of size 0.
// Returns the end of the run if it is closed at `chunk`, else 0.
inline uint64_t closed_at(uint64_t chunk, uint64_t limit) {
  uint64_t size = chunk_size(chunk);
  if (size != kFencepost && size != 2 * kFencepost) return 0;
  uint64_t last = chunk + size;
  if (size + kFencepost > limit - chunk) return 0;
  bool ends_heap = raw_size(last) == (0 | kPrevInUse);
  bool cuts_break = size == kFencepost && raw_size(last) == (kFencepost | kPrevInUse);
  return ends_heap || cuts_break ? last + kFencepost : 0;
}

// The processor notes the first use of each page in the page tables, which are new in a clone; that
// takes longer than walking the chunks of the page. First uses of pages that do not depend on each
// other overlap, so they are made ahead of the walk.
class PagesAhead {
 public:
  explicit PagesAhead(uint64_t end) : end_(end) {}

  void reach(uint64_t address) {
    if (address < next_) return;
    next_ = address + kDistance;
    for (uint64_t page = address; page < next_ && page < end_; page += kPage)
      asm volatile("" : : "r"(load<unsigned char>(page)));
  }

 private:
  static constexpr uint64_t kDistance = 64 * kPage;

  uint64_t next_ = 0;
  uint64_t end_;
};

// Walks from the chunk at `start` to `top` or to fenceposts, below `limit`, calling
// visit(user address, in_use) for each chunk. A walk of more than `most` chunks ends well there.
template <typename Visit>
Run walk_run(uint64_t start, uint64_t limit, uint64_t top, uint64_t most, Visit visit) {
  PagesAhead pages(start < top && top < limit ? top : limit);
  // In registers: in a Run they would have to be stored for each chunk.
  Totals totals;
  uint64_t chunk = start, chunks = 0;
  auto ended = [&](bool valid, uint64_t end = 0) {
    return Run{valid, chunk == top && end != 0, end, totals, chunks, chunk};
  };
  for (;;) {
    if (++chunks > most) return ended(true);
    if (chunk % kGranule != 0 || chunk + kHeader > limit) return ended(false);
    pages.reach(chunk);
    uint64_t size = chunk_size(chunk);
    if (chunk == top) {
      if (size < kHeader || size > limit - chunk) return ended(false);
      visit(chunk + kHeader, false);
      return ended(true, chunk + size);
    }
    bool has_next = size % kGranule == 0 && size <= limit - chunk - kHeader;
    uint64_t next = chunk + size;
    // A run is closed by a small chunk, or before one: nothing else is.
    if (size < kMinChunk || (has_next && chunk_size(next) < kMinChunk)) {
      if (uint64_t end = closed_at(chunk, limit)) {
        visit(chunk + kHeader, false);
        return ended(true, end);
      }
    }
    if (size < kMinChunk || !has_next) return ended(false);
    bool in_use = (raw_size(next) & kPrevInUse) != 0;
    if (!in_use && word(next) != size) return ended(false);
    visit(chunk + kHeader, in_use);
    if (in_use) totals.add(size - 8);
    chunk = next;
  }
}

inline Run probe_run(uint64_t start, uint64_t limit, uint64_t top, uint64_t most = kAllChunks) {
  return walk_run(start, limit, top, most, [](uint64_t, bool) {});
}

// Walks for good: the blocks go into the map and the region is claimed.
inline Run claim_run(uint64_t start, uint64_t limit, uint64_t top, Region region,
                     BlockMap& blocks) {
  NearCluster near(blocks);
  Run run = walk_run(start, limit, top, kAllChunks, [&](uint64_t user, bool in_use) {
    if (in_use) {
      BlockMap::add_live(*near.of(user), user);
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
