// Which granules are blank: no word in them may point into a heap, as in most text and numbers.
//
// A walk from header to header reads nearly every line of a heap, in order. Noting then which
// granules are blank takes little more time; and marking, which reaches blocks in any order, need
// not wait for these granules. (The sweeper's short form notes none.)
#pragma once

#include "arch/lanes.hpp"
#include "memory/cluster.hpp"

namespace reachscan::heaps {

// Returns every second bit, moved together.
constexpr uint64_t halved(uint64_t bits) {
  bits &= 0x5555'5555'5555'5555;
  bits = (bits | bits >> 1) & 0x3333'3333'3333'3333;
  bits = (bits | bits >> 2) & 0x0f0f'0f0f'0f0f'0f0f;
  bits = (bits | bits >> 4) & 0x00ff'00ff'00ff'00ff;
  bits = (bits | bits >> 8) & 0x0000'ffff'0000'ffff;
  return (bits | bits >> 16) & 0xffff'ffff;
}

// Returns a bit for each of the 64 words from `at` on that is in the hull. Needs wide words.
[[gnu::target(REACHSCAN_WIDE_TARGET), gnu::noinline]] inline uint64_t words_inside(uint64_t at,
                                                                                   Range hull) {
  constexpr uint64_t kAtOnce = 4;
  uint64_t inside = 0;
#pragma GCC unroll 16
  for (uint64_t word = 0; word < 64; word += kAtOnce) {
    const arch::Lanes words = arch::load_lanes(at + word * kWord);
    inside |= uint64_t{arch::bits_of(arch::are_within(words, hull.start, hull.end - hull.start))}
              << word;
  }
  return inside;
}

// Returns a bit for each blank granule of the kSpan readable bytes from `base` on.
inline uint64_t blank_granules(uint64_t base, Range hull) {
  const uint64_t first = words_inside(base, hull);
  if constexpr (kFine) return ~first;
  const uint64_t second = words_inside(base + kSpan / 2, hull);
  return ~(halved(first | first >> 1) | halved(second | second >> 1) << 32);
}

}  // namespace reachscan::heaps
