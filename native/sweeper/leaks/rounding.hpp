// How much larger than what was requested a block may be.
#pragma once

#include "memory/space.hpp"

namespace reachscan::sweeper {

// The most that an allocator adds to a request. Large blocks may have pages of their own.
constexpr heaps::uint64_t rounding(heaps::uint64_t size) {
  constexpr heaps::uint64_t kRounding = 24, kLarge = 64 << 10;
  return size < kLarge ? kRounding : heaps::kPage;
}

}  // namespace reachscan::sweeper
