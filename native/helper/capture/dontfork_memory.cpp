// Finds memory that a clone does not inherit: before the pause by the flags in smaps, afterwards by
// the pages that the clone lacks.
#include "helper/capture/dontfork_memory.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include "arch/address_space.hpp"
#include "helper/target/memory_kinds.hpp"

namespace reachscan::helper {
namespace {

using arch::kPage;
using wire::Step;

// A tenth of a second of pause.
constexpr std::uint64_t kMaxBytes = 1ull << 30;

bool has_flag(std::string_view line, std::string_view flag) {
  for (std::size_t at = line.find(flag); at != std::string_view::npos; at = line.find(flag, at + 1))
    if (line[at - 1] == ' ' && (at + 2 == line.size() || line[at + 2] == ' ')) return true;
  return false;
}

// "55d0c0ff0000-55d0c0ff1000 rw-p ..."
bool begins_mapping(std::string_view line, std::uint64_t start) {
  std::uint64_t first = 0;
  auto end = std::from_chars(line.data(), line.data() + line.size(), first, 16);
  return end.ec == std::errc{} && end.ptr < line.data() + line.size() && *end.ptr == '-' &&
         first == start;
}

// Returns the mappings that the program withholds from its clones, according to smaps.
std::vector<MapEntry> advised(const std::vector<MapEntry>& entries, const std::string& smaps) {
  std::vector<MapEntry> found;
  auto entry = entries.begin();
  bool inside = false;
  for (std::string_view rest = smaps; !rest.empty() && entry != entries.end();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    inside = inside || begins_mapping(line, entry->start);
    if (!inside || line.rfind("VmFlags:", 0) != 0) continue;
    // dc = not copied, wf = wiped, whatever the current protection.
    bool lost = has_flag(line, "dc") || has_flag(line, "wf");
    if (lost || is_ring(*entry)) found.push_back(*entry);
    ++entry;
    inside = false;
  }
  return found;
}

// Returns the mapping that contains `address`, or the end.
auto mapping_at(const std::vector<MapEntry>& mappings, std::uint64_t address) {
  auto next = std::upper_bound(
      mappings.begin(), mappings.end(), address,
      [](std::uint64_t wanted, const MapEntry& other) { return wanted < other.end; });
  return next != mappings.end() && next->start <= address ? next : mappings.end();
}

bool is_mapped(const std::vector<MapEntry>& mappings, const MapEntry& entry) {
  return mapping_at(mappings, entry.start) != mappings.end();
}

// The page map may omit the pages of a ring.
std::vector<AddressRange> pages_to_copy(const PageMap& map, const MapEntry& entry) {
  return is_ring(entry) ? std::vector<AddressRange>{{entry.start, entry.end}}
                        : present_pages(map, entry);
}

bool has_page(const PageMap& map, MapEntry entry, std::uint64_t page) {
  entry.start = page;
  entry.end = page + kPage;
  return map.first_page(entry).value_or(page) != 0;
}

// Returns the size of all mappings, which the kernel counts.
std::uint64_t mapped_pages(pid_t pid) {
  std::string text = read_proc_file(pid, "statm", Step::kReadMappings);
  std::uint64_t pages = 0;
  std::from_chars(text.data(), text.data() + text.size(), pages);
  return pages;
}

// Only anonymous memory can be wiped; other memory is either inherited or not.
bool can_be_emptied(const MapEntry& entry) {
  return entry.backing == Backing::kNothing && !is_shared(entry);
}

}  // namespace

DontforkMemory::DontforkMemory(pid_t pid, MappedFiles& files) : pid_(pid), files_(files) { list(); }

void DontforkMemory::list() {
  std::vector<MapEntry> entries = files_.mappings_of(pid_);
  auto others = std::stable_partition(entries.begin(), entries.end(), [](const MapEntry& e) {
    return !is_kernel_owned(e) && !is_device(e);
  });
  left_alone_.assign(others, entries.end());
  entries.erase(others, entries.end());
  candidates_.clear();
  entries_.clear();
  PageMap map(pid_);
  bool older_kernel = !entries.empty() && !map.first_page(entries.front()).has_value();
  if (older_kernel) entries_ = advised(entries, read_proc_file(pid_, "smaps", Step::kReadMappings));
  for (const MapEntry& entry : entries) {
    std::uint64_t page = map.first_page(entry).value_or(0);
    if (is_ring(entry) && !older_kernel) entries_.push_back(entry);
    if (page != 0 && !is_ring(entry)) candidates_.push_back({entry, page});
  }
}

void DontforkMemory::capture(const Memory& memory) {
  mapped_ = mapped_pages(pid_);
  if (entries_.empty()) return;
  PageMap map(pid_);
  std::uint64_t copied = 0;
  bool all_are_full = true;
  for (const MapEntry& entry : entries_) {
    std::vector<AddressRange> stretches = pages_to_copy(map, entry);
    std::uint64_t left = entry.end - entry.start;
    for (const AddressRange& stretch : stretches) {
      std::uint64_t length = stretch.end - stretch.start;
      left -= length;
      copied += length;
      if (copied > kMaxBytes || entry.backing == Backing::kSecret) {
        left_out_ += length;
      } else {
        pieces_.push_back({stretch.start, read(memory, stretch)});
      }
    }
    all_are_full = all_are_full && left == 0;
  }
  if (!all_are_full) drop_unmapped();
}

// Where there are no pages, the mapping may be gone since it was listed. It would make up for
// another one that the clone lacks when has_everything() counts.
void DontforkMemory::drop_unmapped() {
  std::vector<MapEntry> mappings = read_mappings(pid_);
  std::erase_if(entries_, [&](const MapEntry& entry) {
    auto mapping = mapping_at(mappings, entry.start);
    return mapping == mappings.end() || mapping->end < entry.end;
  });
  std::erase_if(pieces_, [&](const Piece& piece) {
    return std::none_of(entries_.begin(), entries_.end(), [&](const MapEntry& entry) {
      return entry.start <= piece.start && piece.start < entry.end;
    });
  });
}

// A clone gets all non-empty pages of private memory. The page may be gone since it was seen; then
// another one is checked.
bool DontforkMemory::is_inherited(const Candidate& candidate, const PageMap& clone,
                                  const std::vector<MapEntry>& mappings) {
  const auto& [entry, page] = candidate;
  if (!can_be_emptied(entry)) return is_mapped(mappings, entry);
  return has_page(clone, entry, page) || clone.first_page(entry).value_or(page) != 0;
}

void DontforkMemory::find_lost(pid_t clone) {
  list();
  PageMap map(clone);
  std::vector<MapEntry> mappings = read_mappings(clone);
  for (const Candidate& candidate : candidates_)
    if (!is_inherited(candidate, map, mappings)) entries_.push_back(candidate.entry);
}

// The target may have mapped memory after it was listed. What it maps when it runs again cannot be
// told from that; but a clone that inherited everything has as many pages mapped.
bool DontforkMemory::has_everything(pid_t clone, const std::vector<MapEntry>& mappings) const {
  std::uint64_t pages = mapped_pages(clone);
  for (const MapEntry& entry : left_alone_)
    if (!is_mapped(mappings, entry)) pages += (entry.end - entry.start) / kPage;
  return pages == mapped_;
}

bool DontforkMemory::may_miss_any(pid_t clone, const std::vector<MapEntry>& mappings) const {
  if (!has_everything(clone, mappings)) return true;
  PageMap map(clone), target(pid_);
  return std::any_of(candidates_.begin(), candidates_.end(), [&](const Candidate& candidate) {
    return !is_inherited(candidate, map, mappings) &&
           has_page(target, candidate.entry, candidate.page);
  });
}

std::vector<char> DontforkMemory::read(const Memory& memory, const AddressRange& stretch) {
  std::vector<char> bytes(stretch.end - stretch.start);
  if (memory.try_read(stretch.start, bytes.data(), bytes.size())) return bytes;
  // Some page is unreadable: read page by page, with zeros for those.
  for (std::uint64_t at = 0; at < bytes.size(); at += kPage)
    memory.try_read(stretch.start + at, bytes.data() + at, kPage);
  return bytes;
}

void DontforkMemory::restore(Clone& clone) const {
  for (const MapEntry& entry : entries_) {
    std::int64_t result = clone.call(
        arch::kMapCall, {entry.start, entry.end - entry.start, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, ~0ull, 0});
    if (result < 0)
      throw Failure(Step::kPrepareClone, Code::kCloneRefused,
                    "the clone of the target got no memory for pages it did not inherit",
                    static_cast<int>(-result), clone.pid(), entry.start);
  }
  for (const Piece& piece : pieces_)
    clone.memory().write(Step::kPrepareClone, piece.start, piece.bytes.data(), piece.bytes.size());
}

}  // namespace reachscan::helper
