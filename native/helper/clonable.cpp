#include "helper/clonable.hpp"

#include <cerrno>
#include <string>

#include "helper/memory_room.hpp"
#include "helper/process.hpp"

namespace reachscan::helper {
namespace {

[[noreturn]] void refuse(pid_t pid, const std::string& why, int error = 0) {
  throw Failure(wire::Step::kOpenTarget, "clone-refused", "process " + std::to_string(pid) + why,
                error, pid);
}

std::string megabytes(std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

// A filter may kill the target for a clone() that it never makes itself.
void require_no_filter(pid_t pid) {
  for (pid_t tid : list_threads(pid)) {
    std::string seccomp = status_field(pid, tid, "Seccomp");
    if (!seccomp.empty() && seccomp != "0")
      refuse(pid, " runs under a seccomp filter, which may forbid it to be cloned");
  }
}

void require_no_init(pid_t pid) {
  // The last number is the one in the innermost pid namespace.
  std::string ids = status_field(pid, pid, "NSpid");
  if (!ids.empty() && ids.substr(ids.find_last_of(" \t") + 1) == "1")
    refuse(pid, " is the init of its pid namespace: orphans become its children");
}

// Memory that the clone takes is charged to the target's control group. If that ran out while the
// clone is being made, the kernel would have only the target to kill.
void require_room_in_group(pid_t pid) {
  std::uint64_t room = memory_headroom(pid);
  if (room < memory_of_clone(pid))
    refuse(pid, " has only " + megabytes(room) + " of memory left in its control group", ENOMEM);
}

// Where the kernel promises no memory that it does not have, it promises a clone all that the
// target may write to.
void require_room_to_promise(pid_t pid) {
  std::uint64_t room = commit_headroom(), needed = commit_of_clone(pid);
  if (room < needed)
    refuse(pid,
           " would need " + megabytes(needed) +
               " for a clone, and the kernel does not overcommit " + "more than " + megabytes(room),
           ENOMEM);
}

}  // namespace

void require_clonable(pid_t pid) {
  require_no_filter(pid);
  require_no_init(pid);
  require_room_in_group(pid);
  require_room_to_promise(pid);
}

}  // namespace reachscan::helper
