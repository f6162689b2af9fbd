// What must be true of a process before anything is done to it.
#pragma once

#include <sys/types.h>

#include <string>

#include "helper/stop/wait.hpp"

namespace reachscan::helper {

std::string name_of(pid_t pid);

// Throws Failure(kOpenTarget, kNoSuchProcess) if it is only a thread of one.
void require_process(pid_t pid);

// Throws Failure(kOpenTarget) if it is no program of this processor, or may not be looked at.
void require_supported(pid_t pid);

// Whether it runs a 32-bit program; false if that cannot be seen.
bool has_short_words(pid_t pid);

// Throws Failure if it does. `why`: a clause about 32-bit programs.
void require_long_words(pid_t pid, const char* why);

// Throws Failure(kOpenTarget, kUnsupportedArchitecture) if pages are not as large as we think.
void require_page_size(pid_t pid);

// Throws Failure(kOpenTarget, kUnstoppable) if a thread of it does not come to a stop in time.
void require_stoppable(pid_t pid, Clock::time_point deadline);

}  // namespace reachscan::helper
