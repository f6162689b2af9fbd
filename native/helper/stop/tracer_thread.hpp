// Everything that stops a target runs on a thread of its own: when it exits, the kernel detaches
// everything that it traced, including threads that never stopped and so could not be detached.
#pragma once

#include <functional>

namespace reachscan::helper {

// Runs `work` on such a thread and waits for its end. Rethrows what it throws.
void run_as_tracer(const std::function<void()>& work);

}  // namespace reachscan::helper
