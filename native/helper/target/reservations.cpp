// Examines large mappings in advance, and notes where pages are.
#include "helper/target/reservations.hpp"

#include <algorithm>
#include <cstdlib>

#include "helper/target/memory_kinds.hpp"

namespace reachscan::helper {
namespace {

// Smaller mappings are examined during the pause.
constexpr std::uint64_t kLargest = 1ull << 30;
// So are mappings with a larger part in use: copying that takes longer.
constexpr std::uint64_t kSparse = 16;
// What one page table page covers.
constexpr std::uint64_t kTableBytes = 2u << 20;
constexpr std::uint64_t kBytesPerTableByte = 512;
constexpr std::uint64_t kStep = 1ull << 30;

std::uint64_t page_table_size(pid_t pid) {
  return std::strtoull(status_field(pid, pid, "VmPTE").c_str(), nullptr, 10);
}

std::uint64_t total(const std::vector<AddressRange>& stretches) {
  std::uint64_t bytes = 0;
  for (const AddressRange& stretch : stretches) bytes += stretch.end - stretch.start;
  return bytes;
}

// In whole page tables, where more pages may appear without a new table.
std::vector<AddressRange> used_tables(const PageMap& map, MapEntry entry) {
  std::vector<AddressRange> used;
  std::uint64_t limit = entry.end;
  for (; entry.start < limit; entry.start = entry.end) {
    entry.end = std::min(limit, entry.start + kStep);
    for (const AddressRange& pages : present_pages(map, entry))
      append(used, pages.start & ~(kTableBytes - 1),
             (pages.end + kTableBytes - 1) & ~(kTableBytes - 1), kTableBytes);
  }
  return used;
}

}  // namespace

Reservations::Reservations(pid_t pid, const PageMap& map, const std::vector<MapEntry>& entries)
    : pid_(pid), page_tables_(page_table_size(pid)) {
  for (const MapEntry& entry : entries) {
    std::uint64_t length = entry.end - entry.start;
    if (length < kLargest || is_kernel_owned(entry) || is_device(entry)) continue;
    if (map.first_page(entry).has_value()) return;  // this kernel is fast
    std::vector<AddressRange> used = used_tables(map, entry);
    if (total(used) > length / kSparse) continue;
    for (const AddressRange& part : subtract({{entry.start, entry.end}}, used))
      unused_.push_back(part);
  }
}

std::vector<AddressRange> Reservations::used_parts(const MapEntry& entry) const {
  std::vector<AddressRange> whole = {{entry.start, entry.end}};
  return entry.end - entry.start < kLargest ? whole : subtract(whole, unused_);
}

std::uint64_t Reservations::maybe_used_since() const {
  std::uint64_t now = unused_.empty() ? page_tables_ : page_table_size(pid_);
  if (now == page_tables_) return 0;
  std::uint64_t more = now > page_tables_ ? (now - page_tables_) << 10 : 0;
  return std::max(more * kBytesPerTableByte, kTableBytes);
}

}  // namespace reachscan::helper
