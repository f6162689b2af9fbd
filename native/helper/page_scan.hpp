// Asks the kernel which pages of a process are in some state (PAGEMAP_SCAN, Linux 6.7). Page tables
// that do not exist cost it nothing.
#pragma once

#include <sys/ioctl.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <vector>

namespace reachscan::helper {

struct Stretch {
  std::uint64_t start;
  std::uint64_t end;
};

// Joins it to the last one if less than `gap` bytes are between them.
inline void append(std::vector<Stretch>& stretches, std::uint64_t start, std::uint64_t end,
                   std::uint64_t gap = 0) {
  if (!stretches.empty() && start - stretches.back().end <= gap) {
    stretches.back().end = end;
  } else {
    stretches.push_back({start, end});
  }
}

// What follows is of the kernel's interface (include/uapi/linux/fs.h), which is newer than the
// headers that this is built with may be.
namespace page {
constexpr std::uint64_t kWritten = 1 << 1, kOfFile = 1 << 2, kPresent = 1 << 3, kSwapped = 1 << 4;
constexpr std::uint64_t kGuard = 1 << 8;
}  // namespace page

struct PageQuery {
  static constexpr std::uint64_t kProtectFound = 1 << 0, kOnlyTracked = 1 << 1;

  std::uint64_t flags = 0;
  std::uint64_t inverted = 0;  // categories that count where they do not hold
  std::uint64_t all_of = 0;
  std::uint64_t any_of = 0;
  std::uint64_t returned = 0;
};

struct PageRegion {
  std::uint64_t start, end, categories;
};

// Calls visit(region) for what is found in [start, end), ascending. False if the kernel refuses.
template <typename Visit>
bool scan_pages(int page_map, const PageQuery& query, std::uint64_t start, std::uint64_t end,
                Visit visit) {
  struct {
    std::uint64_t size, flags, start, end, walk_end, regions, region_count, max_pages;
    std::uint64_t inverted, all_of, any_of, returned;
  } arguments{};
  constexpr auto kScan = _IOWR('f', 16, decltype(arguments));
  std::array<PageRegion, 1024> regions;
  arguments.size = sizeof arguments;
  arguments.flags = query.flags;
  arguments.end = end;
  arguments.regions = reinterpret_cast<std::uint64_t>(regions.data());
  arguments.region_count = regions.size();
  arguments.inverted = query.inverted;
  arguments.all_of = query.all_of;
  arguments.any_of = query.any_of;
  arguments.returned = query.returned;
  for (arguments.start = start; arguments.start < end; arguments.start = arguments.walk_end) {
    int count = ioctl(page_map, kScan, &arguments);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 || arguments.walk_end <= arguments.start) return false;
    for (int i = 0; i < count; ++i) visit(regions[static_cast<std::size_t>(i)]);
  }
  return true;
}

}  // namespace reachscan::helper
