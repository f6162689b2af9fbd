// Walks a run of adjacent chunks. The next chunk's PREV_INUSE bit shows whether a chunk is
// allocated; a free chunk must repeat its size at its end, which detects a walk that went astray.
#pragma once

#include "heaps/glibc/layout.hpp"

namespace reachscan::heaps::glibc {

struct Run {
  bool valid = false;
  bool reached_top = false;
  uint64_t end = 0;  // after the last chunk: after top, or after the fenceposts
  Totals totals;
  uint64_t chunks = 0;
  uint64_t failed_at = 0;
};

// A run that was cut is closed by small headers: by two fenceposts where other code moved the
// break; in a full heap by one, or one twice as large if no more was left, and one of size 0.
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

// A sequence of chunks, from the first to `top` or to fenceposts, below `limit`.
struct Walk {
  uint64_t limit;
  uint64_t top;
  uint64_t chunk;  // the next one; at the end, the last one or the one that failed
  enum : uint8_t { kWalking, kEnded, kFailed } state = kWalking;
  uint64_t end = 0;  // of the run, once the walk has ended
  Totals totals = {};

  bool can_continue() const { return state == kWalking; }

  // Advances over the next chunk and calls visit(user address, in_use), unless it is invalid.
  template <typename Visit>
  [[gnu::always_inline]] void step(Visit visit) {
    if (!is_chunk_aligned(chunk) || chunk + kHeader > limit) return fail();
    uint64_t size = chunk_size(chunk);
    if (chunk == top) {
      if (size < kHeader || size > limit - chunk) return fail();
      visit(chunk + kHeader, false);
      return end_at(chunk + size);
    }
    bool has_next = size % kChunkAlignment == 0 && size <= limit - chunk - kHeader;
    uint64_t next = chunk + size;
    // A run is closed by a small chunk, or before one, and by nothing else.
    if (size < kMinChunk || (has_next && chunk_size(next) < kMinChunk)) {
      if (uint64_t closed = closed_at(chunk, limit)) {
        visit(chunk + kHeader, false);
        return end_at(closed);
      }
    }
    if (size < kMinChunk || !has_next) return fail();
    bool in_use = (raw_size(next) & kPrevInUse) != 0;
    if (!in_use && word(next) != size) return fail();
    visit(chunk + kHeader, in_use);
    if (in_use) totals.add(size - kWord);
    chunk = next;
  }

  Run outcome(uint64_t chunks) const {
    return {state != kFailed, state == kEnded && chunk == top, end, totals, chunks, chunk};
  }

 private:
  void fail() { state = kFailed; }
  void end_at(uint64_t address) {
    state = kEnded;
    end = address;
  }
};

constexpr uint64_t kAllChunks = ~0ull;

// Only reads. A walk of more than `most` chunks is also valid.
inline Run probe_run(uint64_t start, uint64_t limit, uint64_t top, uint64_t most = kAllChunks) {
  Walk walk{limit, top, start};
  uint64_t chunks = 0;
  for (; walk.can_continue() && chunks < most; ++chunks) walk.step([](uint64_t, bool) {});
  return walk.outcome(chunks);
}

}  // namespace reachscan::heaps::glibc
