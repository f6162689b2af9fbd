// Whether a process may be cloned, as far as that can be known without trying.
#pragma once

#include <sys/types.h>

namespace reachscan::helper {

// Throws Failure(kOpenTarget, kCloneRefused) if a thread of it must not make a middleman.
void require_able_to_run(pid_t pid);

// Throws Failure(kOpenTarget, kCloneRefused) if trying could hurt the target, or must fail.
void require_clonable(pid_t pid);

// Clones end as orphans, and orphans become children of an ancestor of the target. Throws the same
// if one of them has kept a zombie with the target's name: it keeps them all, one for each clone.
void require_orphans_collected(pid_t pid);

}  // namespace reachscan::helper
