// Resumes stopped tasks, and classifies the next stop of each.
#pragma once

#include <sys/types.h>

#include <string>

#include "helper/failure.hpp"
#include "helper/stop/wait.hpp"

namespace reachscan::helper {

// Throws Failure(kRunTrampoline, kCloneRefused).
[[noreturn]] void refuse_clone(pid_t tid, const std::string& why, int error = 0);

// The entry or exit of a system call.
bool is_at_call(const WaitStatus& status);
// Caused by the instructions of the task itself.
bool is_fault_signal(int signal);
// A signal to be delivered.
bool brings_signal(const WaitStatus& status);
// After a clone(); child_of_clone() returns the child.
bool is_after_clone(const WaitStatus& status);
pid_t child_of_clone(pid_t parent);

// Resumes the task until its next stop and delivers `signal` on the way, 0 for none. Throws
// Failure(kRunTrampoline, kTargetExited) if the thread is killed.
WaitStatus run_to_stop(pid_t tid, int signal, Clock::time_point deadline);

// Resumes a thread with all signals blocked until its next system call or clone; SIGSTOP, which
// cannot be blocked, is passed on.
WaitStatus run_to_call(pid_t tid, Clock::time_point deadline);

// Throws Failure(kAdoptClone, kCloneRefused) if the newborn is killed before its first stop.
void wait_for_first_stop(pid_t tid, Clock::time_point deadline);

}  // namespace reachscan::helper
