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

// Clears the notes in the kSpan bytes from `base` on and returns them.
[[gnu::always_inline]] inline Greys take_greys(const Cluster& cluster, uint64_t base) {
  uint64_t* pair = cluster.pair(base);
  if constexpr (kFine) {
    unsigned first = bit_of(base / 2);
    uint64_t* greys = cluster.greys_at(base);
    uint64_t noted = relaxed(greys) & kAllOfSpan << first;
    if (noted == 0) return {0, false};
    set_relaxed(greys, relaxed(greys) & ~noted);
    return {doubled(noted >> first) & pair[0] & relaxed(pair + 1), false};
  } else {
    uint64_t after_starts = pair[0] << 1 | pair[-2] >> 63;
    uint64_t marks = relaxed(pair + 1);
    uint64_t noted = marks & ~pair[0] & after_starts;
    if (noted == 0) return {0, false};
    set_relaxed(pair + 1, marks & ~noted);
    return {noted >> 1, (noted & 1) != 0};
  }
}

// Takes the small blocks out of `greys`, which were noted in the kSpan bytes from `base` on. Calls
// visit(granule) for their granules that are not blank.
template <typename Visit>
[[gnu::always_inline]] inline void take_small(const Cluster& cluster, uint64_t base, Greys& greys,
                                              Visit visit) {
  const uint64_t *pair = cluster.pair(base), *blanks = cluster.blanks_at(base);
  const Window here{base, edges_of(pair), blanks[0]};
  uint64_t small = here.small(greys.blocks);
  here.visit_granules(small, visit);
  greys.blocks ^= small;
  // Others may end in the next span.
  constexpr unsigned kFront = 48, kRest = 64 - kFront;
  if (const uint64_t last = greys.blocks >> kFront; last != 0) {
    const Window on{base + kFront * kGranule, here.edges >> kFront | edges_of(pair + 2) << kRest,
                    here.blank >> kFront | blanks[1] << kRest};
    small = on.small(last);
    on.visit_granules(small, visit);
    greys.blocks ^= small << kFront;
  }
}

}  // namespace reachscan::heaps
