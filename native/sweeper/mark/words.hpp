// Iterates over memory word by word, skipping pages that were never written.
#pragma once

#include "memory/space.hpp"

namespace reachscan::sweeper {

// Calls look(start, end) for the parts of [start, end) that have been written to. Small ranges are
// not examined, since that would take as long as reading them.
template <typename Look>
void each_written_part(const heaps::Space& space, uint64_t start, uint64_t end, Look look) {
  if (end - start <= heaps::kPage) return look(start, end);
  for (uint64_t at = space.skip_absent(start), stop; at < end; at = space.skip_absent(stop)) {
    const abi::Mapping* m = space.find(at);
    stop = m != nullptr && m->end < end ? m->end : end;
    look(at, stop);
  }
}

// Calls visit(address, value) for the words of [start, end); `start` is word-aligned.
template <typename Visit>
void each_word(const heaps::Space& space, uint64_t start, uint64_t end, Visit visit) {
  each_written_part(space, start, end, [&](uint64_t at, uint64_t stop) {
    for (; at + heaps::kWord <= stop; at += heaps::kWord) visit(at, heaps::word(at));
  });
}

// A filter tests this many lines per call, so that it does not reload its operands for each.
constexpr unsigned kLinesAtOnce = 64 / (heaps::kLine / heaps::kWord);  // a bit per word

inline unsigned lines_at_once(uint64_t at, uint64_t end) {
  uint64_t lines = (end - at) / heaps::kLine;
  return lines < kLinesAtOnce ? static_cast<unsigned>(lines) : kLinesAtOnce;
}

// The same for words that pass a filter.
template <typename Filter, typename Visit>
void each_word_that(const heaps::Space& space, uint64_t start, uint64_t end, const Filter& filter,
                    Visit visit) {
  using heaps::kLine;
  constexpr uint64_t kAhead = 2048;  // the hardware prefetcher moves on to the next page too late
  each_written_part(space, start, end, [&](uint64_t at, uint64_t stop) {
    for (unsigned lines; at + kLine <= stop; at += lines * kLine) {
      lines = lines_at_once(at, stop);
      for (unsigned i = 0; i < lines; ++i) heaps::fetch(at + kAhead + i * kLine);
      for (uint64_t hits = filter.passing(at, lines); hits != 0; hits &= hits - 1) {
        uint64_t hit = at + heaps::kWord * static_cast<unsigned>(__builtin_ctzll(hits));
        visit(hit, heaps::word(hit));
      }
    }
    for (; at + heaps::kWord <= stop; at += heaps::kWord)
      if (filter.passes_at(at)) visit(at, heaps::word(at));
  });
}

// The same for unaligned words.
template <typename Filter, typename Visit>
void each_unaligned_that(const heaps::Space& space, uint64_t start, uint64_t end,
                         const Filter& filter, Visit visit) {
  using heaps::kLine;
  each_written_part(space, start, end, [&](uint64_t at, uint64_t stop) {
    if (end - stop < heaps::kWord) stop = end - heaps::kWord + 1;  // where the last one starts
    for (unsigned lines; at % heaps::kWord == 0 && at + kLine <= stop; at += lines * kLine) {
      uint64_t passing[kLinesAtOnce];
      lines = lines_at_once(at, stop);
      filter.passing(at, lines, passing);
      for (unsigned i = 0; i < lines; ++i) {
        for (uint64_t hits = passing[i]; hits != 0; hits &= hits - 1) {
          uint64_t hit = at + i * kLine + static_cast<unsigned>(__builtin_ctzll(hits));
          visit(hit, heaps::word(hit));
        }
      }
    }
    for (; at < stop; ++at)
      if (at % heaps::kWord != 0 && filter.passes_at(at)) visit(at, heaps::word(at));
  });
}

}  // namespace reachscan::sweeper
