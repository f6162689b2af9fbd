// Queries which pages of a process are in some state (PAGEMAP_SCAN, Linux 6.7). Missing page tables
// cost the kernel nothing.
#pragma once

#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>

namespace reachscan::helper {

// Part of the kernel's interface (include/uapi/linux/fs.h), which may be newer than the headers
// that this is built with.
namespace page {
constexpr std::uint64_t kWritten = 1 << 1, kOfFile = 1 << 2, kPresent = 1 << 3, kSwapped = 1 << 4;
constexpr std::uint64_t kZeros = 1 << 5, kGuard = 1 << 8;
}  // namespace page

struct PageQuery {
  static constexpr std::uint64_t kProtectFound = 1 << 0, kOnlyTracked = 1 << 1;

  std::uint64_t flags = 0;
  std::uint64_t inverted = 0;  // categories that must not hold
  std::uint64_t all_of = 0;
  std::uint64_t any_of = 0;
  std::uint64_t returned = 0;
  std::uint64_t most_pages = 0;  // where to stop; 0 for no limit
};

struct PageRegion {
  std::uint64_t start, end, categories;
};

// The argument of the call.
struct PageScan {
  PageScan(const PageQuery& query, std::uint64_t from, std::uint64_t to, PageRegion* found,
           std::uint64_t most)
      : size(sizeof *this),
        flags(query.flags),
        start(from),
        end(to),
        walk_end(0),
        regions(reinterpret_cast<std::uintptr_t>(found)),
        region_count(most),
        max_pages(query.most_pages),
        inverted(query.inverted),
        all_of(query.all_of),
        any_of(query.any_of),
        returned(query.returned) {}

  // Returns how many regions were found, negative if the kernel refuses.
  int run(int page_map) {
    for (;;) {
      int count = ioctl(page_map, _IOWR('f', 16, PageScan), this);
      if (count >= 0 || errno != EINTR) return count;
    }
  }

  std::uint64_t size, flags, start, end, walk_end, regions, region_count, max_pages;
  std::uint64_t inverted, all_of, any_of, returned;
};

// Calls visit(region) for each region found in [start, end), ascending. Returns false if the kernel
// refuses. If it found more regions than fit at once, the kernel may report an end before the last
// of them (seen with Linux 6.18), and would return these again.
template <typename Visit>
bool scan_pages(int page_map, const PageQuery& query, std::uint64_t start, std::uint64_t end,
                Visit visit) {
  std::array<PageRegion, 1024> regions;
  PageScan scan(query, start, end, regions.data(), regions.size());
  while (scan.start < end) {
    int count = scan.run(page_map);
    if (count < 0 || scan.walk_end <= scan.start) return false;
    scan.start = scan.walk_end;
    for (int i = 0; i < count; ++i) {
      const PageRegion& region = regions[static_cast<std::size_t>(i)];
      visit(region);
      scan.start = std::max(scan.start, region.end);
    }
  }
  return true;
}

}  // namespace reachscan::helper
