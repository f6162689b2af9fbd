// For tests: dies, as if by SIGKILL from outside, right before a chosen call of the kernel that
// concerns the target, or is stuck there. The linker routes ptrace, waitpid, waitid, pwrite and
// write through here.
#pragma once

#include <cstdint>

namespace reachscan::helper {

// 0, the default, is never.
void die_before_call(std::uint64_t number);
void stall_before_call(std::uint64_t number);

// How many such calls there have been.
std::uint64_t calls_made();

}  // namespace reachscan::helper
