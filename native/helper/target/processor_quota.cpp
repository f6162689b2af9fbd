// Reads cpu.max or cpu.cfs_quota_us, and moves a clone out of a group that has a quota.
#include "helper/target/processor_quota.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "helper/target/memory_limits.hpp"
#include "helper/target/text.hpp"

namespace reachscan::helper {
namespace {

bool is_limited(const std::string& folder, bool unified) {
  if (unified) return number_in(folder + "/cpu.max", kNoLimit) != kNoLimit;  // "max 100000"
  auto microseconds = number_at_start<long>(short_text(folder + "/cpu.cfs_quota_us"));
  return microseconds && *microseconds >= 0;  // -1: no quota
}

// Version 2 moves whole processes: our group is then charged for the memory that the clone takes
// from now on, too.
bool has_room_for(pid_t clone, const ControlGroup& ours) {
  if (!ours.unified) return true;
  MemoryLimits room = memory_limits(getpid());
  return room.bytes >= memory_of_clone(clone, room.together);
}

}  // namespace

bool has_other_quota(const ControlGroup& theirs, const ControlGroup& ours) {
  return std::any_of(theirs.folders.begin(), theirs.folders.end(), [&](const std::string& folder) {
    bool shared = std::find(ours.folders.begin(), ours.folders.end(), folder) != ours.folders.end();
    return !shared && is_limited(folder, theirs.unified);
  });
}

bool leave_quota(pid_t clone) {
  ControlGroup theirs = control_group(clone, "cpu"), ours = control_group(getpid(), "cpu");
  if (!has_other_quota(theirs, ours)) return true;
  if (ours.folders.empty() || !has_room_for(clone, ours)) return false;
  int members = open((ours.folders.front() + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC);
  if (members < 0) return false;
  std::string id = std::to_string(clone);
  bool moved = write(members, id.data(), id.size()) == static_cast<ssize_t>(id.size());
  close(members);
  return moved;
}

}  // namespace reachscan::helper
