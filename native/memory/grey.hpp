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

// Sets both marks, or neither if the first is already set. Returns whether it set them.
template <bool kShared>
inline bool set_marks(uint64_t* marks, uint64_t first, uint64_t second) {
  uint64_t seen = relaxed(marks);
  do {
    if ((seen & first) != 0) return false;
    if (!kShared) {
      *marks = seen | first | second;
      return true;
    }
  } while (!__atomic_compare_exchange_n(marks, &seen, seen | first | second, false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
  return true;
}

template <bool kShared>
[[gnu::always_inline]] inline uint64_t take_bits(uint64_t* word, uint64_t bits) {
  if (kShared) {
    bits &= __atomic_fetch_and(word, ~bits, __ATOMIC_SEQ_CST);
  } else {
    *word &= ~bits;
  }
  return bits;
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

// Marks the block at `start` and defers its scan. Returns the address where that is noted, or 0 if
// the block was already marked.
template <bool kShared>
[[gnu::always_inline]] inline uint64_t make_grey(const Cluster& cluster, uint64_t start) {
  uint64_t* pair = cluster.pair(start);
  unsigned bit = bit_of(start);
  if constexpr (kFine) {
    if (!set_marks<kShared>(pair + 1, 1ull << bit, 0)) return 0;
    set_marks<kShared>(cluster.greys_at(start), 0, 1ull << bit_of(start / 2));
    return start;
  } else {
    if (!set_marks<kShared>(pair + 1, 1ull << bit, 1ull << bit << 1)) return 0;
    if (bit == 63) set_marks<kShared>(pair + 3, 0, 1);
    return start + kGranule;
  }
}

// Calls visit(pair, start) for each block noted as grey in the kSpan bytes from `base` on and
// clears the notes; `pair` covers the start.
template <bool kShared, typename Visit>
[[gnu::always_inline]] inline void take_greys(const Cluster& cluster, uint64_t base, Visit visit) {
  uint64_t* pair = cluster.pair(base);
  uint64_t noted;
  if constexpr (kFine) {
    unsigned first = bit_of(base / 2);
    noted = relaxed(cluster.greys_at(base)) & kAllOfSpan << first;
    if (noted == 0) return;
    noted = doubled(take_bits<kShared>(cluster.greys_at(base), noted) >> first);
    noted &= pair[0] & relaxed(pair + 1);
  } else {
    uint64_t after_starts = pair[0] << 1 | pair[-2] >> 63;
    noted = relaxed(pair + 1) & ~pair[0] & after_starts;
    if (noted == 0) return;
    noted = take_bits<kShared>(pair + 1, noted);
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
