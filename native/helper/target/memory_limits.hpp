// How much more memory the kernel would provide, given the limits of control groups, the memory of
// the machine, and what is promised to all processes together.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "helper/target/control_groups.hpp"

namespace reachscan::helper {

struct MemoryLimits {
  std::uint64_t bytes = kNoLimit;
  bool certain = true;    // false: the group cannot be seen, and `bytes` is a cautious guess
  bool together = false;  // where memory runs out, not only the first to go suffers, but all
};

// What the memory control group of a process, the groups around it and the machine have left.
MemoryLimits memory_limits(pid_t pid);

// The same of one group, as its files tell.
MemoryLimits room_in_group(const ControlGroup& group, std::uint64_t free_swap);

// What a clone takes at least: page tables, the kernel's own records, and what the sweeper needs.
// If all would suffer, also the copies of what the target writes meanwhile, at most.
std::uint64_t memory_of_clone(pid_t pid, bool together);

// Throws Failure(kReadMemory, kNoMemory) if a copy of the process's memory could be too much for
// our own group or the machine.
void require_room_to_copy(pid_t pid);

// " has 12 MiB of memory left in its control group", and whether that is a guess.
std::string describe(const MemoryLimits& room);

// If memory runs out, that process goes first, and those that it makes from now on. Failing to say
// so harms nobody.
void make_first_to_be_killed(pid_t pid);

// How much more memory the kernel would promise, in bytes; very much unless overcommit is strict
// (vm.overcommit_memory = 2).
std::uint64_t commit_headroom();

// What a clone has to be promised at most: all private memory that the process may write to.
std::uint64_t commit_of_clone(pid_t pid);

}  // namespace reachscan::helper
