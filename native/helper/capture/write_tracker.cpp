// Has a middleman create a userfaultfd of the target's memory, and queries the kernel for written
// pages.
#include "helper/capture/write_tracker.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <optional>
#include <string>

#include "helper/failure.hpp"
#include "helper/stop/side_thread.hpp"
#include "helper/target/page_scan.hpp"

namespace reachscan::helper {
namespace {

using wire::Step;

// From linux/userfaultfd.h of Linux 6.7, which may be newer than the headers that this is built
// with.
constexpr std::uint64_t kTrackAsync = 1 << 15;
constexpr std::uint64_t kUserModeOnly = 1;

// What one page table covers.
constexpr std::uint64_t kTableBytes = 2u << 20;
// Scanning the pages in between costs as much as another call.
constexpr std::uint64_t kMaxSkippedBytes = 1u << 20;
// Unprotected at once; about ten microseconds.
constexpr std::uint64_t kUndoBytes = 16u << 20;

[[noreturn]] void refuse(const char* what, int error, pid_t pid) {
  throw Failure(Step::kTrackWrites, Code::kUnsupportedMethod,
                std::string("this kernel cannot track what the target writes: ") + what + ": " +
                    std::strerror(error),
                error, pid);
}

int open_page_map(const std::string& process) {
  return open(("/proc/" + process + "/pagemap").c_str(), O_RDONLY | O_CLOEXEC);
}

bool make_asynchronous(int faults) {
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = kTrackAsync | UFFD_FEATURE_PAGEFAULT_FLAG_WP;
  return ioctl(faults, UFFDIO_API, &api) == 0;
}

bool register_area(int faults, std::uint64_t start, std::uint64_t end) {
  uffdio_register area{};
  area.range = {start, end - start};
  area.mode = UFFDIO_REGISTER_MODE_WP;
  return ioctl(faults, UFFDIO_REGISTER, &area) == 0;
}

// Selects exactly the pages that are no longer protected: the kernel has a faster path for this
// query than for all others.
PageQuery unprotected_pages() {
  PageQuery query;
  query.flags = PageQuery::kOnlyTracked;
  query.all_of = query.returned = page::kWritten;
  return query;
}

bool finds_hole_unprotected(std::uint64_t hole) {
  int faults = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | kUserModeOnly));
  int page_map = open_page_map("self");
  bool found = false;
  if (faults >= 0 && page_map >= 0 && make_asynchronous(faults) &&
      register_area(faults, hole, hole + kTableBytes))
    scan_pages(page_map, unprotected_pages(), hole, hole + kTableBytes,
               [&](const PageRegion&) { found = true; });
  close(faults);
  close(page_map);
  return found;
}

// When a program frees memory, the kernel may free its page table as well. Only since 2026 does the
// kernel report that range as unprotected, as it does single pages. Detected with memory of our own
// that has no page table.
bool reports_freed_tables() {
  void* memory = mmap(nullptr, 2 * kTableBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  auto start = reinterpret_cast<std::uintptr_t>(memory);
  bool tells = finds_hole_unprotected((start + kTableBytes - 1) & ~(kTableBytes - 1));
  munmap(memory, 2 * kTableBytes);
  return tells;
}

}  // namespace

WriteTracker::WriteTracker(pid_t pid, int descriptor)
    : faults_(descriptor), reports_freed_tables_(reports_freed_tables()) {
  page_map_ = open_page_map(std::to_string(pid));
  int error = errno;
  if (page_map_ >= 0 && make_asynchronous(faults_)) return;
  if (page_map_ >= 0) error = errno, close(page_map_);
  close(faults_);
  refuse("asynchronous write protection", error, pid);
}

WriteTracker::~WriteTracker() {
  for (const AddressRange& stretch : watched_) {
    for (std::uint64_t at = stretch.start; at < stretch.end; at += kUndoBytes) {
      uffdio_writeprotect undo{};
      undo.range = {at, std::min(kUndoBytes, stretch.end - at)};
      // Memory that is gone, or remapped by now, needs no undoing.
      ioctl(faults_, UFFDIO_WRITEPROTECT, &undo);
    }
  }
  close(faults_);
  close(page_map_);
}

bool WriteTracker::watch(const MapEntry& entry) {
  if (!register_area(faults_, entry.start, entry.end)) return false;
  watched_.push_back({entry.start, entry.end});
  std::vector<AddressRange> everything;
  return take_written(entry.start, entry.end, everything);
}

// Covers existing pages only. To protect others, the kernel would create page tables for them: 2 GB
// per TB that the target has only reserved.
bool WriteTracker::take_written(std::uint64_t start, std::uint64_t end,
                                std::vector<AddressRange>& written) const {
  PageQuery query = unprotected_pages();
  // Skips memory that is not tracked. If told to fail on it instead, the kernel would not report
  // what it had found, and protected, before.
  query.flags = PageQuery::kProtectFound;
  query.any_of = page::kPresent | page::kSwapped;
  return scan_pages(page_map_, query, start, end,
                    [&](const PageRegion& region) { append(written, region.start, region.end); });
}

void WriteTracker::finish_tracking(std::vector<TrackedArea>& areas) const {
  std::atomic<std::size_t> next{0};
  std::function<void()> work = [&] {
    for (std::size_t i = next++; i < areas.size(); i = next++)
      areas[i].tracked = finish_tracking(areas[i]);
  };
  std::optional<SideThread> other;
  if (areas.size() > 1) other.emplace(work);
  work();
}

bool WriteTracker::finish_tracking(TrackedArea& area) const {
  if (!reports_freed_tables_) return report_states(area.start, area.end, area);
  std::vector<AddressRange> unprotected;
  bool tracked = scan_pages(page_map_, unprotected_pages(), area.start, area.end,
                            [&](const PageRegion& region) {
                              append(unprotected, region.start, region.end, kMaxSkippedBytes);
                            });
  return tracked &&
         std::all_of(unprotected.begin(), unprotected.end(), [&](const AddressRange& part) {
           return report_states(part.start, part.end, area);
         });
}

bool WriteTracker::report_states(std::uint64_t start, std::uint64_t end, TrackedArea& area) const {
  PageQuery query;
  query.flags = PageQuery::kOnlyTracked;
  query.inverted = page::kPresent;
  query.any_of = page::kWritten | page::kPresent;
  query.returned = page::kWritten | page::kPresent | page::kSwapped;
  return scan_pages(page_map_, query, start, end, [&](const PageRegion& region) {
    if ((region.categories & (page::kPresent | page::kSwapped)) == 0) {
      append(area.absent, region.start, region.end);
    } else if ((region.categories & page::kWritten) != 0) {
      append(area.written, region.start, region.end);
    }
  });
}

}  // namespace reachscan::helper
