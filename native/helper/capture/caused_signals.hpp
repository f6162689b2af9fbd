// Signals that the trampoline itself has caused. The target must not get them.
#pragma once

#include <sys/types.h>

#include "helper/stop/stops.hpp"

namespace reachscan::helper {

// Says why the trampoline, of `size` bytes at `site`, caused the signal; null if it did not.
const char* cause_in_trampoline(pid_t tid, const WaitStatus& status, std::uint64_t site,
                                std::size_t size);

}  // namespace reachscan::helper
