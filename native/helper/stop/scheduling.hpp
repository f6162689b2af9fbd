// The scheduling of one thread. POSIX speaks of whole processes where the kernel means one thread,
// so the functions of that name refuse in some C libraries (musl); these ask the kernel.
#pragma once

#include <sched.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

namespace reachscan::helper {

// The calling thread is 0.
inline int scheduling_policy(pid_t tid) {
  return static_cast<int>(syscall(SYS_sched_getscheduler, tid));
}

inline int scheduling_priority(pid_t tid) {
  sched_param parameters{};
  syscall(SYS_sched_getparam, tid, &parameters);
  return parameters.sched_priority;
}

// Where that is not permitted, failing is harmless.
inline void schedule(pid_t tid, int policy, int priority) {
  sched_param parameters{};
  parameters.sched_priority = priority;
  syscall(SYS_sched_setscheduler, tid, policy, &parameters);
}

}  // namespace reachscan::helper
