// How much memory the target's control group may still take.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace reachscan::helper {

// In bytes: the least of its memory control group and all groups around that one. Very much if
// there is no limit, or none that can be seen from here.
std::uint64_t memory_headroom(pid_t pid);

// What a clone takes at most before the sweeper runs: page tables and the kernel's own records.
std::uint64_t memory_of_clone(pid_t pid);

}  // namespace reachscan::helper
