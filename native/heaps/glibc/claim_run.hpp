// Walks a run and claims it: its blocks go into the map, and the region is added.
//
// A walk must go from one header to the next. So that several threads can share a large run, it is
// walked from several places. All except the first are guesses: an address from which some chunks
// line up. The result of a guess is kept only if the preceding walk arrives exactly there, so that
// it is what a single walk from the start would have found.
#pragma once

#include "heaps/glibc/walk_chunks.hpp"

namespace reachscan::heaps::glibc {

// Touches pages ahead of the walk. The processor records each first access in the page tables,
// which are new in a clone. For a load that takes longer than walking the chunks of the page, for a
// prefetch a third of that; but some virtual machines drop prefetches from pages that no load has
// touched. So there are prefetches far ahead of the walk, and loads nearer to it. The pages of the
// bitmaps are written to: for a read, the kernel would map a zero page, and interrupt all threads
// when a write replaces it.
class PagesAhead {
 public:
  PagesAhead(const BlockMap& blocks, uint64_t end) : blocks_(blocks), end_(end) {}

  void reach(uint64_t address) {
    if (address < next_ || address >= end_) return;
    uint64_t stop = end_ - address < kDistance ? end_ : address + kDistance;
    next_ = stop;
    for (uint64_t page = page_of(address); page < stop; page += kPage) fetch_to_l2(page);
    __atomic_fetch_or(blocks_.pair_at(stop), 0, __ATOMIC_RELAXED);
  }

  // Prefetches what is read of a span.
  void fetch_span(uint64_t base) const {
    if (base >= end_) return;
    __atomic_load_n(reinterpret_cast<const uint8_t*>(page_of(base)), __ATOMIC_RELAXED);
    fetch_lines(base, base + kSpan);
  }

 private:
  static uint64_t page_of(uint64_t address) { return address & ~(kPage - 1); }

  // The range covered by one page of the bitmaps.
  static constexpr uint64_t kDistance = kPage / (2 * sizeof(uint64_t)) * kSpan;

  const BlockMap& blocks_;
  uint64_t end_;
  uint64_t next_ = 0;
};

class RunClaim {
 public:
  RunClaim(uint64_t start, uint64_t limit, uint64_t top, BlockMap& blocks)
      : blocks_(blocks), end_(start < top && top < limit ? top : limit) {
    uint64_t length = (end_ - start) / kMaxLegs;
    if (length < kMinLegBytes) length = kMinLegBytes;
    add_leg({limit, top, start});
    // A guess is stopped only by `limit`, so it could find the blocks of another region; dropping
    // its results would then drop these.
    if (end_ - start <= length || blocks.region_in({start, limit}) != nullptr) return;
    for (uint64_t at = start + length; at < end_ && count_ < kMaxLegs; at += length)
      if (uint64_t chunk = guess_chunk(at, limit, top)) add_leg({limit, top, chunk});
  }

  // Walks as long as there are untaken legs. Called on each thread.
  void help() {
    for (;;) {
      unsigned next = __atomic_fetch_add(&taken_, 1, __ATOMIC_RELAXED);
      if (next >= count_) return;
      walk(legs_[next]);
    }
  }

  // Called after all legs have been walked: merges them as if there had been one walk.
  Walk join() {
    Walk whole = legs_[0].walk;
    add(legs_[0].first);
    for (unsigned i = 1; i < count_; ++i) {
      Leg& leg = legs_[i];
      if (whole.can_continue() && whole.chunk == leg.start) {
        add(leg.first);
        leg.walk.totals.add(whole.totals);
        whole = leg.walk;
      } else {
        uint64_t stop = leg.stop < whole.limit ? leg.stop : whole.limit;
        blocks_.drop_edges(leg.start + kHeader, stop + kHeader);
        Leg again{whole, whole.chunk, leg.stop};
        walk(again);
        add(again.first);
        whole = again.walk;
      }
    }
    return whole;
  }

 private:
  static constexpr unsigned kMaxLegs = 16;
  static constexpr uint64_t kMinLegBytes = 1 << 20;
  static constexpr uint64_t kGuessRange = 1 << 16;  // bytes
  static constexpr uint64_t kGuessChunks = 32;
  static constexpr uint64_t kLinesAhead = kPage;
  static constexpr unsigned kSparseChunks = 3;  // in a span

  // What was found in the kSpan bytes from `base` on.
  struct Span {
    uint64_t base;
    uint64_t starts;
    uint64_t boundaries;
  };

  // The walk from one starting place to the next one; the last leg continues until its walk ends.
  // Threads write to several at once, so none of them share a cache line.
  struct alignas(kLine) Leg {
    Walk walk;
    uint64_t start;
    uint64_t stop;
    // Held back: another thread may add its results for the same span.
    Span first = {};

    bool can_continue() const { return walk.can_continue() && walk.chunk < stop; }
  };

  static uint64_t guess_chunk(uint64_t from, uint64_t limit, uint64_t top) {
    from = first_chunk(from & ~(kChunkAlignment - 1));
    for (uint64_t chunk = from; chunk < from + kGuessRange && chunk + kHeader <= limit;
         chunk += kChunkAlignment)
      if (probe_run(chunk, limit, top, kGuessChunks).valid) return chunk;
    return 0;
  }

  void add_leg(const Walk& walk) {
    if (count_ > 0) legs_[count_ - 1].stop = walk.chunk;
    legs_[count_++] = {walk, walk.chunk, ~0ull};
  }

  void walk(Leg& leg) {
    PagesAhead pages(blocks_, leg.stop < end_ ? leg.stop : end_);
    if (leg.can_continue()) leg.first = walk_span(leg);
    Span span = leg.first;
    for (bool dense = is_dense(span); leg.can_continue();) {
      pages.reach(leg.walk.chunk);
      // Each header holds the position of the next, so out-of-order execution cannot read ahead;
      // and the hardware prefetcher, which does not cross pages, starts late on each page.
      if (dense) pages.fetch_span(span.base + kLinesAhead);
      span = walk_span(leg);
      add(span);
      dense = is_dense(span);
      if (dense) blocks_.note_blanks(span.base);
    }
  }

  // Returns whether the span had so many chunks that most of its lines were read.
  static bool is_dense(const Span& span) {
    uint64_t edges = span.starts | span.boundaries;
    for (unsigned few = 0; few < kSparseChunks; ++few) edges &= edges - 1;
    return edges != 0;
  }

  // Walks the chunks whose blocks are in one span.
  static Span walk_span(Leg& leg) {
    Walk walk = leg.walk;
    Span span{(walk.chunk + kHeader) & ~(kSpan - 1), 0, 0};
    do {
      walk.step([&](uint64_t user, bool in_use) {
        uint64_t bit = 1ull << bit_of(user);
        span.starts |= in_use ? bit : 0;
        span.boundaries |= in_use ? 0 : bit;
      });
    } while (walk.can_continue() && walk.chunk < leg.stop &&
             walk.chunk + kHeader - span.base < kSpan);
    leg.walk = walk;
    return span;
  }

  void add(const Span& span) {
    if ((span.starts | span.boundaries) != 0)
      blocks_.add_edges(span.base, span.starts, span.boundaries);
  }

  BlockMap& blocks_;
  uint64_t end_;  // of what is worth touching ahead
  Leg legs_[kMaxLegs];
  unsigned count_ = 0;
  unsigned taken_ = 0;
};

inline Run claim_run(uint64_t start, uint64_t limit, uint64_t top, Region region,
                     const Enumeration& found) {
  RunClaim claim(start, limit, top, found.blocks);
  auto help = [](void* self) { static_cast<RunClaim*>(self)->help(); };
  found.on_threads(limit - start, help, &claim);
  Run run = claim.join().outcome(0);
  if (!run.valid) return run;
  if (region.end < run.end) region.end = run.end;
  found.blocks.add_boundary(align_up(region.end, kChunkAlignment));
  run.valid = found.blocks.region_in({region.start, region.end}) == nullptr &&
              found.blocks.add_region(region);
  return run;
}

}  // namespace reachscan::heaps::glibc
