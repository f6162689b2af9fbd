// Which threads of a stopped target can create the clone.
#pragma once

#include <sys/types.h>

#include "helper/stop/freeze.hpp"

namespace reachscan::helper {

// Returns why a thread must not run the trampoline, as the end of a sentence; null if it may.
const char* obstacle(pid_t pid, const StoppedThread& thread);

}  // namespace reachscan::helper
