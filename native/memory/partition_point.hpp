// Binary search, without a library.
#pragma once

#include <cstddef>

namespace reachscan::heaps {

// Returns how many of `count` elements come first, like std::partition_point(): comes_first(index)
// must be true for those, and false for all others.
template <typename ComesFirst>
std::size_t partition_point(std::size_t count, ComesFirst comes_first) {
  std::size_t low = 0, high = count;
  while (low < high) {
    std::size_t middle = (low + high) / 2;
    if (comes_first(middle)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace reachscan::heaps
