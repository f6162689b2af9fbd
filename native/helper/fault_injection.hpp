// For tests: dies, as if by SIGKILL from outside, or hangs right before a chosen system call that
// concerns the target. The linker routes ptrace, waitpid, waitid, pwrite, write and tee through
// here.
#pragma once

#include <cstdint>

namespace reachscan::helper {

// 0, the default, means never.
void die_before_call(std::uint64_t number);
void stall_before_call(std::uint64_t number);

// The number of such calls so far.
std::uint64_t calls_made();

}  // namespace reachscan::helper
