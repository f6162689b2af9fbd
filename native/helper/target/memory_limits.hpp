// How much more memory the kernel would provide, given the limits of control groups, the memory of
// the machine, and its commitments to all processes.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "helper/target/control_groups.hpp"

namespace reachscan::helper {

struct MemoryLimits {
  std::uint64_t bytes = kNoLimit;
  bool certain = true;    // false: the group cannot be seen, and `bytes` is a cautious guess
  bool together = false;  // when memory runs out, all processes suffer, not only the first victim
};

// Returns what the memory control group of a process, its ancestors and the machine have left.
MemoryLimits memory_limits(pid_t pid);

// The same for one group, according to its files.
MemoryLimits room_in_group(const ControlGroup& group, std::uint64_t free_swap);

// The least that a clone takes: page tables, the kernel's own records, and what the sweeper needs.
// If all processes would suffer, also the most that copies of pages written by the target can take.
std::uint64_t memory_of_clone(pid_t pid, bool together);

// Throws Failure(kReadMemory, kNoMemory) if a copy of the process's memory could exceed what our
// own group or the machine has left.
void require_room_to_copy(pid_t pid);

// " has 12 MiB of memory left in its control group", and whether that is a guess.
std::string describe(const MemoryLimits& room);

// Makes a process, and those it creates from now on, the first victims if memory runs out. Failing
// to do so is harmless.
void prefer_as_oom_victim(pid_t pid);

// How many more bytes of memory the kernel would commit; a huge number unless overcommit is strict
// (vm.overcommit_memory = 2).
std::uint64_t commit_headroom();

// The most that a clone needs committed: all private memory that the process may write to.
std::uint64_t commit_of_clone(pid_t pid);

// How much private memory of the process is in huge pages that it has asked for (MAP_HUGETLB), and
// how much the pools of such pages have left that nobody has reserved.
std::uint64_t private_huge_page_bytes(pid_t pid);
std::uint64_t free_huge_page_bytes();

}  // namespace reachscan::helper
