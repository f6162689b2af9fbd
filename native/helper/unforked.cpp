#include "helper/unforked.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <cerrno>
#include <charconv>
#include <string>
#include <string_view>

#include "helper/process.hpp"

namespace reachscan::helper {
namespace {

using wire::Step;

constexpr std::uint64_t kPage = 4096;
// A tenth of a second of pause.
constexpr std::uint64_t kMaxBytes = 1ull << 30;

bool has_flag(std::string_view line, std::string_view flag) {
  for (std::size_t at = line.find(flag); at != std::string_view::npos; at = line.find(flag, at + 1))
    if (line[at - 1] == ' ' && (at + 2 == line.size() || line[at + 2] == ' ')) return true;
  return false;
}

// "Rss:                   4 kB"
bool has_bytes(std::string_view line, std::string_view key) {
  return line.rfind(key, 0) == 0 && line.find(" 0 kB") == std::string_view::npos;
}

// "55d0c0ff0000-55d0c0ff1000 rw-p ..."
// Leaves its results alone unless the line begins a mapping.
bool parse_range(std::string_view line, std::uint64_t& start, std::uint64_t& end) {
  std::uint64_t first = 0, last = 0;
  const char* limit = line.data() + line.size();
  auto from = std::from_chars(line.data(), limit, first, 16);
  if (from.ec != std::errc{} || from.ptr == limit || *from.ptr != '-') return false;
  auto to = std::from_chars(from.ptr + 1, limit, last, 16);
  if (to.ec != std::errc{} || to.ptr == limit || *to.ptr != ' ') return false;
  start = first;
  end = last;
  return true;
}

}  // namespace

UnforkedMemory::UnforkedMemory(pid_t pid) {
  std::string text = read_proc_file(pid, "smaps", Step::kReadMappings);
  std::uint64_t start = 0, end = 0, total = 0;
  bool resident = false, ring = false;
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (parse_range(line, start, end)) {
      resident = false;
      ring = line.ends_with(" anon_inode:[io_uring]");
    }
    if (has_bytes(line, "Rss:") || has_bytes(line, "Swap:")) resident = true;
    if (line.rfind("VmFlags:", 0) != 0) continue;
    // dc = not copied, wf = wiped, whatever the protection is now; io and pf are devices.
    bool wanted = resident && (ring || has_flag(line, "dc") || has_flag(line, "wf")) &&
                  !has_flag(line, "io") && !has_flag(line, "pf");
    if (!wanted) continue;
    if (total + (end - start) > kMaxBytes) {
      left_out_ += end - start;
      continue;
    }
    total += end - start;
    ranges_.push_back({start, end, std::vector<char>(end - start)});
  }
}

void UnforkedMemory::capture(const Memory& memory) {
  for (Range& range : ranges_) {
    if (memory.try_read(range.start, range.bytes.data(), range.bytes.size())) continue;
    // Some page cannot be read: page by page, with zeros for those.
    for (std::uint64_t at = 0; at < range.bytes.size(); at += kPage)
      memory.try_read(range.start + at, range.bytes.data() + at, kPage);
  }
}

void UnforkedMemory::restore(Clone& clone) const {
  for (const Range& range : ranges_) {
    std::int64_t result =
        clone.call(SYS_mmap, {range.start, range.end - range.start, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, ~0ull, 0});
    if (result < 0)
      throw Failure(Step::kPrepareClone, "clone-refused",
                    "the clone of the target got no memory for pages it did not inherit",
                    static_cast<int>(-result), clone.pid(), range.start);
    clone.memory().write(Step::kPrepareClone, range.start, range.bytes.data(), range.bytes.size());
  }
}

}  // namespace reachscan::helper
