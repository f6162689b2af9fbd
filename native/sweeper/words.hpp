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

// The same, but only where test(value) holds, which is asked without a branch for each word.
template <typename Test, typename Visit>
void each_word_that(const heaps::Space& space, uint64_t start, uint64_t end, Test test,
                    Visit visit) {
  constexpr unsigned kTogether = 8;
  bool large = end - start > heaps::kPage;
  for (uint64_t at = start; at + 8 <= end;) {
    if (large) at = space.skip_absent(at);
    uint64_t page_end = (at & ~(heaps::kPage - 1)) + heaps::kPage;
    uint64_t stop = page_end < end ? page_end : end;
    for (; at + 8 * kTogether <= stop; at += 8 * kTogether) {
      unsigned hits = 0;
      for (unsigned i = 0; i < kTogether; ++i)
        hits |= static_cast<unsigned>(test(heaps::word(at + 8 * i))) << i;
      for (; hits != 0; hits &= hits - 1)
        visit(heaps::word(at + 8 * static_cast<unsigned>(__builtin_ctz(hits))));
    }
    for (; at + 8 <= stop; at += 8)
      if (uint64_t value = heaps::word(at); test(value)) visit(value);
  }
}

}  // namespace reachscan::sweeper
