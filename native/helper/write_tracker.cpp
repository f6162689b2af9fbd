#include "helper/write_tracker.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "helper/failure.hpp"

namespace reachscan::helper {

// As the kernel defines it (include/uapi/linux/fs.h).
struct ScanArguments {
  std::uint64_t size, flags, start, end, walk_end, regions, region_count, max_pages;
  std::uint64_t inverted, all_of, any_of, returned;
};

namespace {

using wire::Step;

// Of the kernel's interface (linux/userfaultfd.h, linux/fs.h of Linux 6.7), which is newer than the
// headers that this is built with may be.
constexpr std::uint64_t kTrackAsync = 1 << 15;
constexpr std::uint64_t kWritten = 1 << 1, kPresent = 1 << 3, kSwapped = 1 << 4;
constexpr std::uint64_t kProtectMatching = 1 << 0, kOnlyTracked = 1 << 1;

struct PageRegion {
  std::uint64_t start, end, categories;
};

constexpr unsigned long kPageMapScan = _IOWR('f', 16, ScanArguments);
constexpr std::size_t kRegionsAtOnce = 8192;
// Undone at once; some ten microseconds.
constexpr std::uint64_t kUndoBytes = 16u << 20;

[[noreturn]] void refuse(const char* what, int error, pid_t pid) {
  throw Failure(Step::kTrackWrites, "unsupported-method",
                std::string("this kernel cannot track what the target writes: ") + what + ": " +
                    std::strerror(error),
                error, pid);
}

void append(std::vector<Stretch>& stretches, std::uint64_t start, std::uint64_t end) {
  if (!stretches.empty() && stretches.back().end == start) {
    stretches.back().end = end;
  } else {
    stretches.push_back({start, end});
  }
}

}  // namespace

WriteTracker::WriteTracker(pid_t pid, int descriptor) : pid_(pid), faults_(descriptor) {
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = kTrackAsync | UFFD_FEATURE_PAGEFAULT_FLAG_WP;
  page_map_ = open(("/proc/" + std::to_string(pid) + "/pagemap").c_str(), O_RDONLY | O_CLOEXEC);
  int error = errno;
  if (page_map_ >= 0 && ioctl(faults_, UFFDIO_API, &api) == 0) return;
  if (page_map_ >= 0) error = errno, close(page_map_);
  close(faults_);
  refuse("asynchronous write protection", error, pid);
}

WriteTracker::~WriteTracker() {
  for (const Stretch& stretch : watched_) {
    for (std::uint64_t at = stretch.start; at < stretch.end; at += kUndoBytes) {
      uffdio_writeprotect undo{};
      undo.range = {at, std::min(kUndoBytes, stretch.end - at)};
      // Memory that is gone, or another's by now, needs no undoing.
      ioctl(faults_, UFFDIO_WRITEPROTECT, &undo);
    }
  }
  close(faults_);
  close(page_map_);
}

bool WriteTracker::watch(const MapEntry& entry) {
  uffdio_register area{};
  area.range = {entry.start, entry.end - entry.start};
  area.mode = UFFDIO_REGISTER_MODE_WP;
  if (ioctl(faults_, UFFDIO_REGISTER, &area) != 0) return false;
  watched_.push_back({entry.start, entry.end});
  std::vector<Stretch> everything;
  return take_written(entry.start, entry.end, everything);
}

template <typename Visit>
bool WriteTracker::scan(ScanArguments& arguments, std::uint64_t start, std::uint64_t end,
                        Visit visit) const {
  std::vector<PageRegion> regions(kRegionsAtOnce);
  arguments.size = sizeof arguments;
  arguments.flags |= kOnlyTracked;
  arguments.end = end;
  arguments.regions = reinterpret_cast<std::uint64_t>(regions.data());
  arguments.region_count = regions.size();
  for (arguments.start = start; arguments.start < end; arguments.start = arguments.walk_end) {
    int count = ioctl(page_map_, kPageMapScan, &arguments);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 || arguments.walk_end <= arguments.start) return false;
    for (int i = 0; i < count; ++i) visit(regions[static_cast<std::size_t>(i)]);
  }
  return true;
}

bool WriteTracker::take_written(std::uint64_t start, std::uint64_t end,
                                std::vector<Stretch>& written) const {
  ScanArguments arguments{};
  arguments.flags = kProtectMatching;
  arguments.all_of = arguments.returned = kWritten;
  return scan(arguments, start, end,
              [&](const PageRegion& region) { append(written, region.start, region.end); });
}

bool WriteTracker::conclude(std::uint64_t start, std::uint64_t end, PageStates& states) const {
  ScanArguments arguments{};
  arguments.inverted = kPresent;
  arguments.any_of = kWritten | kPresent;
  arguments.returned = kWritten | kPresent | kSwapped;
  return scan(arguments, start, end, [&](const PageRegion& region) {
    if ((region.categories & (kPresent | kSwapped)) == 0) {
      append(states.absent, region.start, region.end);
    } else if ((region.categories & kWritten) != 0) {
      append(states.written, region.start, region.end);
    }
  });
}

}  // namespace reachscan::helper
