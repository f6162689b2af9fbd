#include "helper/residence.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "wire/protocol.hpp"

namespace reachscan::helper {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kPagesAtOnce = 1 << 16;
constexpr std::uint64_t kPresent = 1ull << 63, kSwapped = 1ull << 62, kOfFile = 1ull << 61;
constexpr std::uint64_t kShortest = 64 << 10;

// Whether the program can have written to the page. Of a private mapping of a file, pages that are
// still the file's were not.
bool is_written(const MapEntry& entry, std::uint64_t bits) {
  bool private_file = entry.inode != 0 && (entry.perms & wire::kShared) == 0;
  if (private_file && (bits & kOfFile) != 0) return false;
  return (bits & (kPresent | kSwapped)) != 0;
}

}  // namespace

std::vector<Stretch> absent_stretches(pid_t pid, const MapEntry& entry) {
  std::vector<Stretch> absent;
  if ((entry.perms & wire::kWrite) == 0 || entry.end - entry.start < kShortest) return absent;
  int fd = open(("/proc/" + std::to_string(pid) + "/pagemap").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absent;
  std::vector<std::uint64_t> bits(std::min(kPagesAtOnce, (entry.end - entry.start) / kPage));
  std::uint64_t from = entry.start;  // of the stretch without pages that may be under way
  auto finish = [&](std::uint64_t end) {
    if (end > from && end - from >= kShortest) absent.push_back({from, end});
  };
  for (std::uint64_t at = entry.start; at < entry.end;) {
    std::uint64_t count = std::min<std::uint64_t>(bits.size(), (entry.end - at) / kPage);
    ssize_t length = pread(fd, bits.data(), count * sizeof bits[0],
                           static_cast<off_t>(at / kPage * sizeof bits[0]));
    if (length != static_cast<ssize_t>(count * sizeof bits[0])) {
      from = entry.end;  // unknown from here on: taken for present
      break;
    }
    for (std::uint64_t i = 0; i < count; ++i, at += kPage) {
      if (!is_written(entry, bits[i])) continue;
      finish(at);
      from = at + kPage;
    }
  }
  finish(entry.end);
  close(fd);
  return absent;
}

}  // namespace reachscan::helper
