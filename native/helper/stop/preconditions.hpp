// What must be true of a process before anything is done to it.
#pragma once

#include <sys/types.h>

#include <string>

#include "helper/stop/wait.hpp"

namespace reachscan::helper {

std::string name_of(pid_t pid);

// Throws Failure(kOpenTarget, kNoSuchProcess) if `pid` is only a thread of a process.
void require_process(pid_t pid);

// Throws Failure(kOpenTarget) if it is not a program of this processor, or may not be examined.
void require_supported(pid_t pid);

// Returns whether it runs a 32-bit program; false if that cannot be determined.
bool has_short_words(pid_t pid);

// Throws Failure if it runs a 32-bit program. `why`: a clause about 32-bit programs.
void require_long_words(pid_t pid, const char* why);

// Throws Failure(kOpenTarget, kUnstoppable) if one of its threads cannot be stopped in time.
void require_stoppable(pid_t pid, Clock::time_point deadline);

}  // namespace reachscan::helper
