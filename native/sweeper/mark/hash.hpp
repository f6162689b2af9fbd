// Multiplicative hashing: the upper bits of a product with this constant are distributed best.
#pragma once

#include "memory/space.hpp"

namespace reachscan::sweeper {

constexpr heaps::uint64_t kGolden = 0x9e37'79b9'7f4a'7c15;  // 2^64 divided by the golden ratio

// Mixes one more value into a hash.
constexpr heaps::uint64_t mixed(heaps::uint64_t into, heaps::uint64_t part) {
  return (into ^ into >> 29 ^ part) * kGolden;
}

}  // namespace reachscan::sweeper
