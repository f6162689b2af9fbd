// What the kernel reports about the pages of a mapping when that takes many answers.
#include "helper/target/page_scan.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <random>
#include <vector>

#include "check.hpp"

namespace reachscan::tests {
namespace {

using helper::PageQuery;
using helper::PageRegion;

constexpr std::uint64_t kPage = 4096;
constexpr std::size_t kPages = 16 << 10;

CASE(each_page_is_told_of_once_and_in_order) {
  void* memory = mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(memory != MAP_FAILED);
  CHECK_EQ(madvise(memory, kPages * kPage, MADV_NOHUGEPAGE), 0);
  auto start = reinterpret_cast<std::uint64_t>(memory);
  int page_map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  std::mt19937 random(1);
  std::vector<bool> touched(kPages);
  PageQuery query;
  query.any_of = query.returned = helper::page::kPresent | helper::page::kSwapped;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 900; ++i) {
      std::size_t page = random() % kPages;
      static_cast<volatile char*>(memory)[page * kPage] = 1;
      touched[page] = true;
    }
    std::vector<bool> told(kPages);
    std::uint64_t end = start;
    bool known = helper::scan_pages(page_map, query, start, start + kPages * kPage,
                                    [&](const PageRegion& region) {
                                      CHECK(region.start >= end);
                                      end = region.end;
                                      for (std::uint64_t at = region.start; at < end; at += kPage)
                                        told[(at - start) / kPage] = true;
                                    });
    if (!known) break;  // a kernel before 6.7
    CHECK(told == touched);
  }
  close(page_map);
  munmap(memory, kPages * kPage);
}

}  // namespace
}  // namespace reachscan::tests
