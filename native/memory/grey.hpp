// Grey blocks: reached, but not yet scanned.
//
// In the common form no start or boundary directly follows the start of a block, so a mark there
// says that the block is grey. In the fine form that bit may belong to the next block, so grey
// blocks have a bitmap of their own. It is as fine as the common form, since every lookup that
// marks a block fetches a line of it: a block of a single word may be scanned twice, which is
// harmless.
#pragma once

#include "memory/cluster.hpp"

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

// Calls visit(pair, start) for each block noted as grey in the kSpan bytes from `base` on and
// clears the notes; `pair` covers the start.
template <typename Visit>
[[gnu::always_inline]] inline void take_greys(const Cluster& cluster, uint64_t base, Visit visit) {
  uint64_t* pair = cluster.pair(base);
  uint64_t noted;
  if constexpr (kFine) {
    unsigned first = bit_of(base / 2);
    uint64_t* greys = cluster.greys_at(base);
    noted = relaxed(greys) & kAllOfSpan << first;
    if (noted == 0) return;
    set_relaxed(greys, relaxed(greys) & ~noted);
    noted = doubled(noted >> first);
    noted &= pair[0] & relaxed(pair + 1);
  } else {
    uint64_t after_starts = pair[0] << 1 | pair[-2] >> 63;
    uint64_t marks = relaxed(pair + 1);
    noted = marks & ~pair[0] & after_starts;
    if (noted == 0) return;
    set_relaxed(pair + 1, marks & ~noted);
    if ((noted & 1) != 0) {
      visit(pair - 2, base - kGranule);
      noted ^= 1;
    }
  }
  for (; noted != 0; noted &= noted - 1) {
    uint64_t granule = static_cast<unsigned>(__builtin_ctzll(noted));
    visit(pair, base + (kFine ? granule : granule - 1) * kGranule);
  }
}

}  // namespace reachscan::heaps
