// How much larger than what was requested a block may be.
#pragma once

#include "memory/space.hpp"

namespace reachscan::heaps {

// The most that an allocator adds to a request. glibc aligns chunks, and leaves no rest of a chunk
// that would be too small for another one. Large blocks may have pages of their own.
constexpr uint64_t rounding(uint64_t size) {
  constexpr uint64_t kRounding = 31, kLarge = 64 << 10;
  return size < kLarge ? kRounding : kPage;
}

// Returns whether a block of so many bytes may be what was returned for a request.
constexpr bool may_hold_request(uint64_t bytes, uint64_t requested) {
  return requested <= bytes && bytes - requested <= rounding(requested);
}

}  // namespace reachscan::heaps
