#include "helper/unforked.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include "helper/memory_kinds.hpp"

namespace reachscan::helper {
namespace {

using wire::Step;

constexpr std::uint64_t kPage = 4096;
// A tenth of a second of pause.
constexpr std::uint64_t kMaxBytes = 1ull << 30;

// The usual size of a stack. To list the pages of larger mappings would take longer than to ask
// whether there is one.
constexpr std::uint64_t kSmall = 8u << 20, kMostTogether = 64u << 20;

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

// Of those that the program has kept from its clones, by what smaps tells.
std::vector<MapEntry> advised(const std::vector<MapEntry>& entries, const std::string& smaps) {
  std::vector<MapEntry> found;
  auto entry = entries.begin();
  bool inside = false;
  for (std::string_view rest = smaps; !rest.empty() && entry != entries.end();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    inside = inside || begins_mapping(line, entry->start);
    if (!inside || line.rfind("VmFlags:", 0) != 0) continue;
    // dc = not copied, wf = wiped, whatever the protection is now.
    bool lost = has_flag(line, "dc") || has_flag(line, "wf");
    if (lost || is_ring(*entry)) found.push_back(*entry);
    ++entry;
    inside = false;
  }
  return found;
}

// The size of the address space; exact, unlike what is told of memory in use.
std::string mapped_pages(pid_t pid) {
  std::string text = try_read_proc_file(pid, "statm");
  return text.substr(0, text.find(' '));
}

bool is_mapped(const std::vector<MapEntry>& mappings, const MapEntry& entry) {
  auto next = std::upper_bound(
      mappings.begin(), mappings.end(), entry.start,
      [](std::uint64_t address, const MapEntry& other) { return address < other.end; });
  return next != mappings.end() && next->start <= entry.start;
}

// The pages of a ring may be of a kind that the page map leaves out.
std::vector<Stretch> pages_to_copy(const PageMap& map, const MapEntry& entry) {
  return is_ring(entry) ? std::vector<Stretch>{{entry.start, entry.end}}
                        : present_pages(map, entry);
}

bool is_small(const MapEntry& entry) {
  return entry.backing == Backing::kNothing && !is_shared(entry) &&
         entry.end - entry.start <= kSmall;
}

// Small ones that lie side by side, as the stacks of threads do, are asked for together.
std::vector<bool> tell_which_have_pages(const PageMap& map, const std::vector<MapEntry>& entries) {
  std::vector<bool> told(entries.size());
  for (std::size_t first = 0, last = 0; first < entries.size(); first = last) {
    for (last = first + 1; last < entries.size(); ++last)
      if (!is_small(entries[first]) || !is_small(entries[last]) ||
          entries[last].end - entries[first].start > kMostTogether)
        break;
    if (last == first + 1) {
      told[first] = map.has_pages(entries[first]).value_or(true);
      continue;
    }
    std::vector<Stretch> pages;
    bool known = map.find_anonymous_pages(entries[first].start, entries[last - 1].end, pages);
    auto run = pages.begin();
    for (std::size_t i = first; i < last; ++i) {
      while (run != pages.end() && run->end <= entries[i].start) ++run;
      told[i] = !known || (run != pages.end() && run->start < entries[i].end);
    }
  }
  return told;
}

}  // namespace

UnforkedMemory::UnforkedMemory(pid_t pid, MappedFiles& files) : pid_(pid) {
  std::vector<MapEntry> entries = files.mappings_of(pid);
  std::erase_if(entries, [](const MapEntry& e) { return is_kernel_owned(e) || is_device(e); });
  PageMap map(pid);
  known_ = !entries.empty() && !map.has_pages(entries.front()).has_value();
  if (known_) {
    entries_ = advised(entries, read_proc_file(pid, "smaps", Step::kReadMappings));
  } else {
    std::copy_if(entries.begin(), entries.end(), std::back_inserter(entries_),
                 [&](const MapEntry& entry) {
                   return is_ring(entry) || map.has_pages(entry).value_or(false);
                 });
  }
}

void UnforkedMemory::capture(const Memory& memory, pid_t clone) {
  if (!known_) keep_lost(clone);
  PageMap map(pid_);
  std::uint64_t copied = 0;
  for (const MapEntry& entry : entries_) {
    for (const Stretch& stretch : pages_to_copy(map, entry)) {
      std::uint64_t length = stretch.end - stretch.start;
      copied += length;
      if (copied > kMaxBytes || entry.backing == Backing::kSecret) {
        left_out_ += length;
      } else {
        pieces_.push_back({stretch.start, read(memory, stretch)});
      }
    }
  }
}

// A clone gets all pages of private memory that hold something, and none of shared memory. Whether
// it has got that at all, its mappings tell; they are as large as the target's unless some are
// missing.
void UnforkedMemory::keep_lost(pid_t clone) {
  PageMap map(clone);
  std::vector<MapEntry> mappings;
  bool complete = mapped_pages(pid_) == mapped_pages(clone);
  if (!complete) mappings = read_mappings(clone);
  std::vector<bool> has_pages = tell_which_have_pages(map, entries_);
  std::vector<MapEntry> lost;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    bool inherited = is_shared(entries_[i]) ? complete || is_mapped(mappings, entries_[i])
                                            : static_cast<bool>(has_pages[i]);
    if (!inherited || is_ring(entries_[i])) lost.push_back(entries_[i]);
  }
  entries_ = std::move(lost);
}

std::vector<char> UnforkedMemory::read(const Memory& memory, const Stretch& stretch) {
  std::vector<char> bytes(stretch.end - stretch.start);
  if (memory.try_read(stretch.start, bytes.data(), bytes.size())) return bytes;
  // Some page cannot be read: page by page, with zeros for those.
  for (std::uint64_t at = 0; at < bytes.size(); at += kPage)
    memory.try_read(stretch.start + at, bytes.data() + at, kPage);
  return bytes;
}

void UnforkedMemory::restore(Clone& clone) const {
  for (const MapEntry& entry : entries_) {
    std::int64_t result =
        clone.call(SYS_mmap, {entry.start, entry.end - entry.start, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, ~0ull, 0});
    if (result < 0)
      throw Failure(Step::kPrepareClone, "clone-refused",
                    "the clone of the target got no memory for pages it did not inherit",
                    static_cast<int>(-result), clone.pid(), entry.start);
  }
  for (const Piece& piece : pieces_)
    clone.memory().write(Step::kPrepareClone, piece.start, piece.bytes.data(), piece.bytes.size());
}

}  // namespace reachscan::helper
