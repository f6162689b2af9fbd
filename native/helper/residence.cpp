#include "helper/residence.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "helper/memory_kinds.hpp"
#include "wire/protocol.hpp"

namespace reachscan::helper {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kShortest = 64 << 10;

using Stretches = std::vector<Stretch>;

// Of a private mapping of a file, pages that are still the file's were not written.
bool counts_own_pages_only(const MapEntry& entry) {
  return entry.inode != 0 && (entry.perms & wire::kShared) == 0;
}

bool find_pages(int page_map, const MapEntry& entry, const PageQuery& query, Stretches& found) {
  return scan_pages(page_map, query, entry.start, entry.end,
                    [&](const PageRegion& region) { append(found, region.start, region.end); });
}

// Eight bytes for each page, on all kernels.
bool read_page_map(int fd, const MapEntry& entry, Stretches& written) {
  constexpr std::uint64_t kPagesAtOnce = 1 << 16;
  constexpr std::uint64_t kPresent = 1ull << 63, kSwapped = 1ull << 62, kOfFile = 1ull << 61;
  bool own = counts_own_pages_only(entry);
  std::vector<std::uint64_t> bits(std::min(kPagesAtOnce, (entry.end - entry.start) / kPage));
  for (std::uint64_t at = entry.start; at < entry.end;) {
    std::uint64_t count = std::min<std::uint64_t>(bits.size(), (entry.end - at) / kPage);
    auto length = static_cast<ssize_t>(count * sizeof bits[0]);
    if (pread(fd, bits.data(), count * sizeof bits[0],
              static_cast<off_t>(at / kPage * sizeof bits[0])) != length)
      return false;
    for (std::uint64_t i = 0; i < count; ++i, at += kPage)
      if ((bits[i] & (kPresent | kSwapped)) != 0 && !(own && (bits[i] & kOfFile) != 0))
        append(written, at, at + kPage);
  }
  return true;
}

// What the kernel tells of a mapping.
struct Pages {
  bool known = false;
  Stretches written;
  // Inaccessible without a mapping of their own, as glibc 2.42 makes one below each stack
  // (MADV_GUARD_INSTALL). Kernels before 6.15 do not tell.
  Stretches guards;
};

Pages pages_of(const PageMap& map, const MapEntry& entry) {
  Pages pages;
  int fd = map.descriptor();
  if (fd < 0) return pages;
  PageQuery guards, written;
  guards.all_of = page::kGuard;
  // A guard would pass for a page that was swapped out.
  if (find_pages(fd, entry, guards, pages.guards)) written.inverted = page::kGuard;
  if (counts_own_pages_only(entry)) written.inverted |= page::kOfFile;
  written.all_of = written.inverted;
  written.any_of = page::kPresent | page::kSwapped;
  pages.known = find_pages(fd, entry, written, pages.written);
  if (!pages.known) {
    pages.written.clear();
    pages.known = read_page_map(fd, entry, pages.written);
  }
  return pages;
}

bool may_be_protected(const MapEntry& entry) {
  constexpr std::uint32_t kReadWrite = wire::kRead | wire::kWrite;
  if ((entry.perms & kReadWrite) == kReadWrite || is_kernel_owned(entry) || is_device(entry))
    return false;
  if ((entry.perms & wire::kShared) != 0) return is_shared_anonymous(entry);
  // Anonymous memory that can be read is searched anyway.
  return (entry.perms & wire::kRead) == 0 || is_file(entry);
}

void append_all(Stretches& to, const Stretches& from) {
  to.insert(to.end(), from.begin(), from.end());
}

std::vector<Stretch> absent_stretches(const PageMap& map, const MapEntry& entry) {
  std::vector<Stretch> absent;
  if ((entry.perms & wire::kWrite) == 0 || entry.end - entry.start < kShortest) return absent;
  Pages pages = pages_of(map, entry);
  if (!pages.known) return absent;
  pages.written.push_back({entry.end, entry.end});
  std::uint64_t from = entry.start;
  auto guard = pages.guards.begin();
  for (const Stretch& stretch : pages.written) {
    while (guard != pages.guards.end() && guard->end <= from) ++guard;
    bool guarded = guard != pages.guards.end() && guard->start < stretch.start;
    if (guarded || stretch.start - from >= kShortest) absent.push_back({from, stretch.start});
    from = stretch.end;
  }
  return absent;
}

std::vector<Stretch> protected_stretches(const PageMap& map, const MapEntry& entry) {
  if (!may_be_protected(entry)) return {};
  Pages pages = pages_of(map, entry);
  return pages.known ? pages.written : Stretches{{entry.start, entry.end}};
}

}  // namespace

PageMap::PageMap(pid_t pid)
    : descriptor_(
          open(("/proc/" + std::to_string(pid) + "/pagemap").c_str(), O_RDONLY | O_CLOEXEC)) {}

PageMap::~PageMap() { close(descriptor_); }

void Residence::add(const PageMap& own, const PageMap& shared, const MapEntry& entry) {
  const PageMap& owner = (entry.perms & wire::kShared) != 0 ? shared : own;
  append_all(absent, absent_stretches(owner, entry));
  append_all(protected_, protected_stretches(owner, entry));
}

}  // namespace reachscan::helper
