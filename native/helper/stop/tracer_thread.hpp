// Everything that stops a target is done on a thread of its own: when it ends, the kernel lets go
// of all that it traced, threads included that never came to a stop and so could not be detached.
#pragma once

#include <functional>

namespace reachscan::helper {

// Runs `work` on such a thread and waits for its end. What it throws, this throws.
void run_as_tracer(const std::function<void()>& work);

}  // namespace reachscan::helper
