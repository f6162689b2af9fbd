#include "helper/memory_room.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

#include "helper/process.hpp"
#include "wire/protocol.hpp"

namespace reachscan::helper {
namespace {

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();
// Stacks and descriptors of two processes, what the kernel charges in advance, and the first pages
// that the target and the clone write to.
constexpr std::uint64_t kMargin = 4u << 20;

constexpr std::uint64_t kStrict = 2;  // of vm.overcommit_memory

struct Hierarchy {
  const char* folder;
  const char* limit;
  const char* usage;
};

constexpr Hierarchy kVersion1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                 "memory.usage_in_bytes"};
constexpr Hierarchy kVersion2 = {"/sys/fs/cgroup", "memory.max", "memory.current"};

// A file that holds one number; `otherwise` if it is not there or says "max".
std::uint64_t number_in(const std::string& path, std::uint64_t otherwise) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  return file >> value ? value : otherwise;
}

// A line of /proc/meminfo, in bytes.
std::uint64_t machine_memory(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind(key, 0) == 0) return std::stoull(line.substr(key.size())) << 10;
  return 0;
}

std::uint64_t headroom_in(const Hierarchy& hierarchy, std::string group) {
  std::uint64_t least = kNoLimit;
  for (;;) {
    std::string folder = hierarchy.folder + group + "/";
    std::uint64_t limit = number_in(folder + hierarchy.limit, kNoLimit);
    std::uint64_t usage = number_in(folder + hierarchy.usage, 0);
    if (limit != kNoLimit) least = std::min(least, limit > usage ? limit - usage : 0);
    std::size_t slash = group.rfind('/');
    if (slash == std::string::npos || group.empty()) return least;
    group.resize(slash);
  }
}

// "ID:controllers:/path"; version 2 has the ID 0 and no controllers.
std::uint64_t headroom_by(std::string_view line) {
  std::size_t first = line.find(':'), second = line.find(':', first + 1);
  if (second == std::string_view::npos) return kNoLimit;
  std::string controllers = "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
  std::string group(line.substr(second + 1));
  if (group == "/") group.clear();
  if (controllers == ",,") return headroom_in(kVersion2, group);
  if (controllers.find(",memory,") != std::string::npos) return headroom_in(kVersion1, group);
  return kNoLimit;
}

}  // namespace

std::uint64_t memory_headroom(pid_t pid) {
  std::string text = read_proc_file(pid, "cgroup", wire::Step::kOpenTarget);
  std::uint64_t least = kNoLimit;
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    least = std::min(least, headroom_by(line));
  }
  return least;
}

std::uint64_t memory_of_clone(pid_t pid) {
  std::string tables = status_field(pid, pid, "VmPTE");  // "2096 kB"
  std::uint64_t kibibytes = 0;
  std::from_chars(tables.data(), tables.data() + tables.size(), kibibytes);
  return (kibibytes << 10) + kMargin;
}

std::uint64_t commit_headroom() {
  if (number_in("/proc/sys/vm/overcommit_memory", 0) != kStrict) return kNoLimit;
  std::uint64_t limit = machine_memory("CommitLimit:"), promised = machine_memory("Committed_AS:");
  return limit > promised ? limit - promised : 0;
}

std::uint64_t commit_of_clone(pid_t pid) {
  std::uint64_t bytes = 0;
  for (const MapEntry& entry : read_mappings(pid))
    if ((entry.perms & wire::kWrite) != 0 && (entry.perms & wire::kShared) == 0)
      bytes += entry.end - entry.start;
  return bytes;
}

}  // namespace reachscan::helper
