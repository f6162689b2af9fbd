// Ranges of an address space: ascending, not overlapping.
#pragma once

#include <cstdint>
#include <vector>

namespace reachscan::helper {

struct AddressRange {
  std::uint64_t start;
  std::uint64_t end;
};

// Appends a range, or extends the last one if at most `gap` bytes are between them.
inline void append(std::vector<AddressRange>& stretches, std::uint64_t start, std::uint64_t end,
                   std::uint64_t gap = 0) {
  if (!stretches.empty() && start - stretches.back().end <= gap) {
    stretches.back().end = end;
  } else {
    stretches.push_back({start, end});
  }
}

// Returns what is in `all` but not in `other`.
inline std::vector<AddressRange> subtract(const std::vector<AddressRange>& all,
                                          const std::vector<AddressRange>& other) {
  std::vector<AddressRange> rest;
  auto next = other.begin();
  for (AddressRange stretch : all) {
    while (next != other.end() && next->end <= stretch.start) ++next;
    for (auto at = next; at != other.end() && at->start < stretch.end; ++at) {
      if (stretch.start < at->start) rest.push_back({stretch.start, at->start});
      stretch.start = at->end;
      if (at->end >= stretch.end) break;
    }
    if (stretch.start < stretch.end) rest.push_back(stretch);
  }
  return rest;
}

// Returns what is in both.
inline std::vector<AddressRange> intersect(const std::vector<AddressRange>& one,
                                           const std::vector<AddressRange>& other) {
  return subtract(one, subtract(one, other));
}

}  // namespace reachscan::helper
