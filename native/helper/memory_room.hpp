// How much memory the kernel would still give: the target's control group, and all processes
// together.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace reachscan::helper {

// In bytes: the least of its memory control group and all groups around that one. Very much if
// there is no limit, or none that can be seen from here.
std::uint64_t memory_headroom(pid_t pid);

// What a clone takes at most before the sweeper runs: page tables and the kernel's own records.
std::uint64_t memory_of_clone(pid_t pid);

// How much more memory the kernel would promise, in bytes; very much unless overcommit is strict
// (vm.overcommit_memory = 2).
std::uint64_t commit_headroom();

// What a clone has to be promised at most: all private memory that the process may write to.
std::uint64_t commit_of_clone(pid_t pid);

}  // namespace reachscan::helper
