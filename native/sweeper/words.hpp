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

}  // namespace reachscan::sweeper
