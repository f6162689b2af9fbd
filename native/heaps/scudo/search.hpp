// Finds the allocator in stripped, dynamic and static programs alike: by its descriptions of size
// classes, each with its own part of one large piece of the address space.
#pragma once

#include "heaps/images.hpp"
#include "heaps/scudo/layout.hpp"

namespace reachscan::heaps::scudo {

constexpr std::size_t kMaxInstances = 8;
constexpr uint64_t kInstanceAlignment = 64;

class Search {
 public:
  explicit Search(const Space& space) : space_(space) {}

  std::size_t find(Instance (&found)[kMaxInstances]) const {
    std::size_t count = 0;
    each_module_data(space_, [&](uint32_t file, Range data) {
      for (uint64_t at = align_up(data.start, kInstanceAlignment);
           at + Instance::kBytes <= data.end && count < kMaxInstances; at += kInstanceAlignment) {
        if (at % kPage == 0) at = space_.skip_absent(at);
        if (at + Instance::kBytes > data.end) break;
        count += is_any(file, data, at, found[count]);
      }
    });
    return count;
  }

 private:
  bool is_any(uint32_t file, Range data, uint64_t at, Instance& found) const {
    for (const Layout& layout : kLayouts) {
      found = {file, data, at + kCookieBefore, layout};
      if (is_instance(found)) return true;
    }
    return false;
  }

  bool is_instance(const Instance& found) const {
    for (unsigned number = 0; number < kClasses; ++number)
      if (!is_class(found, number)) return false;
    return are_apart(found) && load<uint32_t>(found.cache() + kMaxEntriesField) <= kCacheEntries;
  }

  bool is_class(const Instance& found, unsigned number) const {
    uint64_t start = found.start(number), mapped = found.mapped(number);
    uint64_t carved = found.carved(number);
    return start != 0 && start % kPage == 0 && mapped % kPage == 0 && carved <= mapped &&
           mapped < kClassReach && (number == 0 || carved % size_of_class(number) == 0) &&
           space_.is_anonymous(start, start + (mapped != 0 ? mapped : 1));
  }

  // The parts of the classes are adjacent, in any order.
  static bool are_apart(const Instance& found) {
    uint64_t first = ~0ull, seen = 0;
    for (unsigned number = 0; number < kClasses; ++number)
      if (found.start(number) < first) first = found.start(number);
    for (unsigned number = 0; number < kClasses; ++number) {
      uint64_t distance = found.start(number) - first + kMaxShift, part = distance / kClassReach;
      if (distance % kClassReach >= 2 * kMaxShift || part >= kClasses) return false;
      seen |= 1ull << part;
    }
    return seen == (1ull << kClasses) - 1;
  }

  const Space& space_;
};

}  // namespace reachscan::heaps::scudo
