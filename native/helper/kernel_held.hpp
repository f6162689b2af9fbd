// Pointers that a program has handed to the kernel and may keep nowhere else.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace reachscan::helper {

// Data of epoll registrations (/proc/PID/fdinfo) and signal values of POSIX timers
// (/proc/PID/timers). What may not be read, or goes away meanwhile, is left out: these words are
// roots beyond the memory.
std::vector<std::uint64_t> kernel_held_words(pid_t pid);

// Whether the program handles any signal: then its threads may have stacks for that, of which only
// the kernel knows.
bool handles_signals(pid_t pid);

// Values that wait with signals for a thread, or for its whole process (sigqueue(), timers). The
// threads must be stopped by us.
std::vector<std::uint64_t> pending_signal_words(const std::vector<pid_t>& threads);

}  // namespace reachscan::helper
