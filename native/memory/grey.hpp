// Grey blocks: reached, but not yet scanned.
//
// In the common form no start or boundary directly follows the start of a block, so a mark there
// says that the block is grey. In the fine form that bit may belong to the next block, so grey
// blocks have a bitmap of their own. It is as fine as the common form, since every lookup that
// marks a block fetches a line of it: a block of a single word may be scanned twice, which is
// harmless.
#pragma once

#include "memory/granules.hpp"

namespace reachscan::heaps {

// Sets a bit of the marks. Returns false if it was already set. Shared: other threads may change
// bits of the same word.
template <bool kShared>
inline bool set_mark(uint64_t* marks, uint64_t bit) {
  uint64_t seen = relaxed(marks);
  if ((seen & bit) != 0) return false;
  if (kShared) return (__atomic_fetch_or(marks, bit, __ATOMIC_RELAXED) & bit) == 0;
  set_relaxed(marks, seen | bit);
  return true;
}

// Fine form: the bits for one span.
constexpr uint64_t kAllOfSpan = ~0ull >> 32;

// Returns two bits for each of the lower 32.
constexpr uint64_t doubled(uint64_t bits) {
  bits = (bits | bits << 16) & 0x0000'ffff'0000'ffff;
  bits = (bits | bits << 8) & 0x00ff'00ff'00ff'00ff;
  bits = (bits | bits << 4) & 0x0f0f'0f0f'0f0f'0f0f;
  bits = (bits | bits << 2) & 0x3333'3333'3333'3333;
  bits = (bits | bits << 1) & 0x5555'5555'5555'5555;
  return bits * 3;
}

// Returns the address where it is noted that the block at `start` is grey.
constexpr uint64_t note_of(uint64_t start) { return kFine ? start : start + kGranule; }

inline void note_grey(const Cluster& cluster, uint64_t start) {
  uint64_t at = note_of(start);
  set_mark<false>(kFine ? cluster.greys_at(at) : cluster.pair(at) + 1,
                  1ull << bit_of(kFine ? at / 2 : at));
}

// Marks the block at `start` and notes it as grey. Returns false if it was already marked.
[[gnu::always_inline]] inline bool make_grey(const Cluster& cluster, uint64_t start) {
  uint64_t* marks = cluster.pair(start) + 1;
  uint64_t seen = relaxed(marks), bit = 1ull << bit_of(start);
  if ((seen & bit) != 0) return false;
  // Mostly, both bits are in the same word.
  const bool in_one = !kFine && bit << 1 != 0;
  set_relaxed(marks, seen | bit | (in_one ? bit << 1 : 0));
  if (!in_one) note_grey(cluster, start);
  return true;
}

// The grey blocks that were noted in one span.
struct Greys {
  uint64_t blocks;  // that start there: a bit for each granule
  bool one_before;  // whether one starts in the granule before the span
};

// Returns the notes in the kSpan bytes from `base` on, as they are in a word of a bitmap.
[[gnu::always_inline]] inline uint64_t notes_in(const Cluster& cluster, uint64_t base) {
  if constexpr (kFine) return relaxed(cluster.greys_at(base)) & kAllOfSpan << bit_of(base / 2);
  const uint64_t* pair = cluster.pair(base);
  uint64_t after_starts = pair[0] << 1 | pair[-2] >> 63;
  return relaxed(pair + 1) & ~pair[0] & after_starts;
}

// Clears these notes and returns what they say.
[[gnu::always_inline]] inline Greys take_greys(const Cluster& cluster, uint64_t base,
                                               uint64_t notes) {
  const uint64_t* pair = cluster.pair(base);
  uint64_t* noted = kFine ? cluster.greys_at(base) : cluster.pair(base) + 1;
  set_relaxed(noted, relaxed(noted) & ~notes);
  if constexpr (kFine)
    return {doubled(notes >> bit_of(base / 2)) & pair[0] & relaxed(pair + 1), false};
  return {notes >> 1, (notes & 1) != 0};
}

// Grey blocks, a bit for each granule, of the span before `base` and of kSpansAtOnce spans from
// there on.
struct GreySpans {
  uint64_t blocks[1 + kSpansAtOnce] = {};
};

// Clears the notes in kSpansAtOnce spans from `base` on and returns them.
[[gnu::always_inline]] inline GreySpans take_grey_spans(const Cluster& cluster, uint64_t base) {
  GreySpans greys;
  for (unsigned i = 0; i < kSpansAtOnce; ++i) {
    const uint64_t span = base + i * kSpan;
    const Greys noted = take_greys(cluster, span, notes_in(cluster, span));
    greys.blocks[i] |= uint64_t{noted.one_before} << 63;
    greys.blocks[i + 1] = noted.blocks;
  }
  return greys;
}

// The same, but calls visit(granule) for the granules of small blocks that are not blank, where
// that is known, and visit_block(start) for all other blocks.
template <typename VisitBlock, typename Visit>
[[gnu::always_inline]] inline void take_granules(const Cluster& cluster, uint64_t base,
                                                 VisitBlock visit_block, Visit visit) {
  const GreySpans greys = take_grey_spans(cluster, base);
  unsigned grey[1 + kSpansAtOnce], count = 0;
  for (unsigned i = 0; i <= kSpansAtOnce; ++i) {
    grey[count] = i;
    count += greys.blocks[i] != 0;
  }
  GranuleBits granules;
  for (unsigned i = 0; i < count; ++i) {
    const uint64_t span = base + grey[i] * kSpan - kSpan;
    const uint64_t *pair = cluster.pair(span), *blank = cluster.blanks_at(span);
    const TwoSpans edges{edges_of(pair), edges_of(pair + 2)};
    const uint64_t blocks = greys.blocks[grey[i]];
    const uint64_t small = blank[0] == 0 ? 0 : small_of(blocks, edges);
    for (uint64_t left = blocks & ~small; left != 0; left &= left - 1)
      visit_block(span + static_cast<unsigned>(__builtin_ctzll(left)) * kGranule);
    granules.add(span, small, edges, {blank[0], blank[1]});
  }
  granules.visit_all(visit);
}

}  // namespace reachscan::heaps
