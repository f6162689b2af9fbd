// Finds a place to map memory that code can reach by a jump.
#pragma once

#include <algorithm>
#include <vector>

#include "arch/address_space.hpp"
#include "arch/imports.hpp"
#include "helper/target/process.hpp"

namespace reachscan::helper {

// Returns an address from which code in [first, last] and what it uses can be reached: the highest
// free place below, since the heap of a static program grows above it; otherwise the highest of
// all. 0 if there is none.
inline std::uint64_t free_place(const std::vector<MapEntry>& entries, std::uint64_t first,
                                std::uint64_t last, std::uint64_t bytes) {
  using arch::kPage;
  const std::uint64_t kLowest = 16 * kPage;  // the kernel maps nothing below by default
  std::uint64_t reach = (first + arch::kJumpReach) / kPage * kPage;
  std::uint64_t place = 0, end = kLowest;
  for (const MapEntry& entry : entries) {
    std::uint64_t gap_end = std::min(entry.start, reach);
    bool is_needed = end <= first || place == 0 || place > first;
    if (is_needed && gap_end > end && gap_end - end >= bytes + 2 * kPage)
      place = gap_end - bytes - kPage;
    if (place < first && last - place >= arch::kJumpReach) place = 0;
    end = entry.end;
  }
  return place;
}

}  // namespace reachscan::helper
