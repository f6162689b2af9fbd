// Goes through memory word by word, leaving out what was never written to.
#pragma once

#include "heaps/space.hpp"

namespace reachscan::sweeper {

// Calls visit(address, value) for the words of [start, end), which begins at a word.
template <typename Visit>
void each_word(const heaps::Space& space, uint64_t start, uint64_t end, Visit visit) {
  bool large = end - start > heaps::kPage;
  for (uint64_t at = start; at + 8 <= end;) {
    if (large) at = space.skip_absent(at);
    uint64_t page_end = (at & ~(heaps::kPage - 1)) + heaps::kPage;
    for (uint64_t stop = page_end < end ? page_end : end; at + 8 <= stop; at += 8)
      visit(at, heaps::word(at));
  }
}

// The same for the words that pass a filter, which is asked for a line of eight at a time.
template <typename Filter, typename Visit>
void each_word_that(const heaps::Space& space, uint64_t start, uint64_t end, const Filter& filter,
                    Visit visit) {
  using heaps::kLine;
  constexpr uint64_t kAhead = 2048;  // the processor by itself goes on to the next page late
  bool large = end - start > heaps::kPage;
  for (uint64_t at = start; at + 8 <= end;) {
    if (large) at = space.skip_absent(at);
    uint64_t page_end = (at & ~(heaps::kPage - 1)) + heaps::kPage;
    uint64_t stop = page_end < end ? page_end : end;
    for (; at + kLine <= stop; at += kLine) {
      heaps::fetch(at + kAhead);
      for (unsigned hits = filter.passing(at); hits != 0; hits &= hits - 1) {
        uint64_t hit = at + 8 * static_cast<unsigned>(__builtin_ctz(hits));
        visit(hit, heaps::word(hit));
      }
    }
    for (; at + 8 <= stop; at += 8)
      if (filter.passes_at(at)) visit(at, heaps::word(at));
  }
}

// The same for what begins at any byte but every eighth. A filter is asked for 64 places at a time.
template <typename Filter, typename Visit>
void each_unaligned_that(const heaps::Space& space, uint64_t start, uint64_t end,
                         const Filter& filter, Visit visit) {
  using heaps::kLine;
  bool large = end - start > heaps::kPage;
  for (uint64_t at = start; at + 8 <= end;) {
    if (large) at = space.skip_absent(at);
    uint64_t page_end = (at & ~(heaps::kPage - 1)) + heaps::kPage;
    uint64_t stop = page_end + 7 < end ? page_end : end - 7;
    for (; at % 8 == 0 && at + kLine <= stop; at += kLine) {
      for (uint64_t hits = filter.passing(at); hits != 0; hits &= hits - 1) {
        uint64_t hit = at + static_cast<unsigned>(__builtin_ctzll(hits));
        visit(hit, heaps::word(hit));
      }
    }
    for (; at < stop; ++at)
      if (at % 8 != 0 && filter.passes_at(at)) visit(at, heaps::word(at));
  }
}

}  // namespace reachscan::sweeper
