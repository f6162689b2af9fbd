// Whether a process may be cloned, as far as that can be known without trying.
#pragma once

#include <sys/types.h>

namespace reachscan::helper {

// Throws Failure(kOpenTarget, "clone-refused") if trying could hurt the target, or must fail.
void require_clonable(pid_t pid);

}  // namespace reachscan::helper
