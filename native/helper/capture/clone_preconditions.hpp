// Whether a process may be cloned, as far as can be known without trying.
#pragma once

#include <sys/types.h>

#include <chrono>

namespace reachscan::helper {

// Throws Failure(kOpenTarget, kCloneRefused) if one of its threads must not create a middleman.
void require_able_to_run(pid_t pid);

// Throws the same failure if its orphans become its own children.
void require_no_init(pid_t pid);

// Throws Failure(kOpenTarget, kCloneRefused) if trying could harm the target, or must fail.
void require_clonable(pid_t pid);

// Clones end as orphans, which become children of an ancestor of the target. Throws the same
// failure if such an ancestor keeps a zombie with the target's name: it never reaps any, so every
// clone would stay. Waits a few seconds, but not beyond the deadline, for one to be reaped.
void require_orphans_collected(pid_t pid, std::chrono::steady_clock::time_point deadline);

}  // namespace reachscan::helper
