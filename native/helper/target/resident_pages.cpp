// Finds out which pages exist with PAGEMAP_SCAN, or from the pagemap where the kernel lacks it.
#include "helper/target/resident_pages.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "arch/address_space.hpp"
#include "helper/target/memory_kinds.hpp"
#include "helper/target/page_scan.hpp"
#include "helper/target/reservations.hpp"
#include "wire/protocol.hpp"

namespace reachscan::helper {
namespace {

using arch::kPage;
constexpr std::uint64_t kMinGapBytes = 64 << 10;

using Stretches = std::vector<AddressRange>;

// A swapped-out page is read back automatically, unless it is not one: in write-protected memory
// (userfaultfd), a swap entry may only mark an absent page.
constexpr std::uint64_t kReadable = page::kPresent, kMaybe = page::kSwapped | page::kWritten;

// What the kernel reports about a mapping.
struct Pages {
  bool known = false;
  Stretches there;
  // Guard pages without a mapping of their own, as glibc 2.42 creates below each stack
  // (MADV_GUARD_INSTALL). Kernels before 6.15 do not report them.
  Stretches guards;
};

// Selects pages in none of these categories.
PageQuery pages_but(std::uint64_t categories) {
  PageQuery query;
  query.inverted = query.all_of = categories;
  query.any_of = page::kPresent | page::kSwapped;
  return query;
}

// `own`: only pages of a private mapping that are no longer the file's.
bool scan_pages_there(int fd, const MapEntry& entry, bool own, Pages& pages) {
  PageQuery query = pages_but(own ? page::kOfFile : 0);
  query.returned = page::kPresent | page::kSwapped | page::kWritten | page::kGuard;
  auto sort_in = [&](const PageRegion& region) {
    if ((region.categories & page::kGuard) != 0) {
      append(pages.guards, region.start, region.end);
    } else if ((region.categories & kReadable) != 0 || (region.categories & kMaybe) == kMaybe) {
      append(pages.there, region.start, region.end);
    }
  };
  if (scan_pages(fd, query, entry.start, entry.end, sort_in)) return true;
  query.returned &= ~page::kGuard;
  pages = {};
  return scan_pages(fd, query, entry.start, entry.end, sort_in);
}

// Eight bytes per page, on all kernels.
bool read_pages_there(int fd, const AddressRange& part, bool own, Stretches& there) {
  constexpr std::uint64_t kPagesAtOnce = 1 << 16;
  constexpr std::uint64_t kPresent = 1ull << 63, kSwapped = 1ull << 62, kOfFile = 1ull << 61;
  constexpr std::uint64_t kWriteProtected = 1ull << 57;
  std::vector<std::uint64_t> bits(std::min(kPagesAtOnce, (part.end - part.start) / kPage));
  for (std::uint64_t at = part.start; at < part.end;) {
    std::uint64_t count = std::min<std::uint64_t>(bits.size(), (part.end - at) / kPage);
    auto length = static_cast<ssize_t>(count * sizeof bits[0]);
    if (pread(fd, bits.data(), count * sizeof bits[0],
              static_cast<off_t>(at / kPage * sizeof bits[0])) != length)
      return false;
    for (std::uint64_t i = 0; i < count; ++i, at += kPage) {
      bool readable =
          (bits[i] & kPresent) != 0 || (bits[i] & (kSwapped | kWriteProtected)) == kSwapped;
      if (readable && !(own && (bits[i] & kOfFile) != 0)) append(there, at, at + kPage);
    }
  }
  return true;
}

Pages pages_of(const PageMap& map, const MapEntry& entry, bool own) {
  Pages pages;
  int fd = map.descriptor();
  if (fd < 0) return pages;
  pages.known = scan_pages_there(fd, entry, own, pages);
  if (pages.known) return pages;
  pages = {};
  Stretches parts = map.used_parts(entry);
  pages.known = std::all_of(parts.begin(), parts.end(), [&](const AddressRange& part) {
    return read_pages_there(fd, part, own, pages.there);
  });
  return pages;
}

bool is_private_file(const MapEntry& entry) {
  return entry.backing != Backing::kNothing && !is_shared(entry);
}

void append_all(Stretches& to, const Stretches& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// Selects the gaps that deserve a mapping of their own in the sweeper's table.
Stretches long_or_guarded(const Stretches& gaps, const Stretches& guards) {
  Stretches chosen;
  auto guard = guards.begin();
  for (const AddressRange& gap : gaps) {
    while (guard != guards.end() && guard->end <= gap.start) ++guard;
    bool guarded = guard != guards.end() && guard->start < gap.end;
    if (guarded || gap.end - gap.start >= kMinGapBytes) chosen.push_back(gap);
  }
  return chosen;
}

}  // namespace

PageMap::PageMap(pid_t pid, const Reservations* reservations)
    : descriptor_(
          open(("/proc/" + std::to_string(pid) + "/pagemap").c_str(), O_RDONLY | O_CLOEXEC)),
      reservations_(reservations) {}

PageMap::~PageMap() { close(descriptor_); }

Stretches PageMap::used_parts(const MapEntry& entry) const {
  if (reservations_ == nullptr) return {{entry.start, entry.end}};
  return reservations_->used_parts(entry);
}

std::optional<std::uint64_t> PageMap::first_page(const MapEntry& entry) const {
  PageQuery query = pages_but(is_shared(entry) ? 0 : page::kOfFile | page::kZeros);
  query.most_pages = 1;
  PageRegion region;
  int count = PageScan(query, entry.start, entry.end, &region, 1).run(descriptor_);
  if (count < 0) return {};
  return count > 0 ? region.start : 0;
}

Stretches present_pages(const PageMap& map, const MapEntry& entry) {
  return pages_of(map, entry, false).there;
}

Stretches ResidentPages::add(const PageMap& own, const PageMap& target, const MapEntry& entry) {
  Stretches written;
  if (may_be_protected(entry)) {
    const PageMap& owner = is_shared(entry) ? target : own;
    written = pages_of(owner, entry, is_private_file(entry)).there;
    append_all(protected_, written);
  }
  if (!is_readable(entry)) return written;
  Stretches whole = {{entry.start, entry.end}};
  if (only_present_pages(entry)) {
    written = present_pages(own, entry);
    Stretches gaps = subtract(whole, written);
    if (&own != &target) gaps = subtract(gaps, present_pages(target, entry));
    append_all(untouchable, gaps);
  } else if (changes(entry)) {
    Pages pages = pages_of(own, entry, is_private_file(entry));
    if (pages.known)
      append_all(absent, long_or_guarded(subtract(whole, pages.there), pages.guards));
    written = std::move(pages.there);
  }
  return written;
}

bool ResidentPages::may_touch(std::uint64_t address, std::uint64_t length) const {
  auto next = std::upper_bound(
      untouchable.begin(), untouchable.end(), address,
      [](std::uint64_t value, const AddressRange& stretch) { return value < stretch.end; });
  return next == untouchable.end() || next->start >= address + length;
}

}  // namespace reachscan::helper
