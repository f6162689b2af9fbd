// Where the control groups of a process are in the file system, as far as they can be seen from
// here.
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
  bool visible = true;   // false: it exists, but nothing of it can be seen
  // Its own and those of the groups around it, innermost first. None in the outermost group.
  std::vector<std::string> folders;
};

// The group of a process that a controller ("memory", "cpu", "freezer") keeps.
ControlGroup control_group(pid_t pid, std::string_view controller);

// Whether its control group, or one around that, has it frozen: none of its threads runs then.
bool is_frozen(pid_t pid);

// control_group() from the texts of /proc/PID/cgroup and /proc/self/mountinfo. `outermost`: a path
// of "/" stands for the outermost group, not only for that of a namespace.
ControlGroup locate_group(std::string_view groups, std::string_view mounts,
                          std::string_view controller, bool outermost);

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

// A file that holds one number; `otherwise` if it is not there or says "max".
std::uint64_t number_in(const std::string& path, std::uint64_t otherwise);

// The number behind a key at the begin of a line; 0 if it is not there.
std::uint64_t number_of_key(const std::string& path, std::string_view key);

}  // namespace reachscan::helper
