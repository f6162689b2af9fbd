// Locates the control groups of a process in the file system, as far as they are visible from here.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace reachscan::helper {

struct ControlGroup {
  bool unified = false;  // version 2 of the interface
  bool visible = true;   // false: it exists, but cannot be seen from here
  // Its own folder and those of its ancestors, innermost first. Empty for the root group.
  std::vector<std::string> folders;
};

// Returns a process's group for a controller ("memory", "cpu", "freezer").
ControlGroup control_group(pid_t pid, std::string_view controller);

// Returns whether its control group, or an ancestor, is frozen: none of its threads runs then.
bool is_frozen(pid_t pid);

// Implements control_group() from the texts of /proc/PID/cgroup and /proc/self/mountinfo.
// `outermost`: a path of "/" means the root group, not just that of a namespace.
ControlGroup locate_group(std::string_view groups, std::string_view mounts,
                          std::string_view controller, bool outermost);

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

// Returns the single number in a file; `otherwise` if the file is missing or says "max".
std::uint64_t number_in(const std::string& path, std::uint64_t otherwise);

// Returns the number after a key at the start of a line; 0 if there is none.
std::uint64_t number_of_key(const std::string& path, std::string_view key);

}  // namespace reachscan::helper
