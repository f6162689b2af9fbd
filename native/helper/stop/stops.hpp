// Resumes stopped tasks, and classifies the stop that each comes to next.
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
// A signal that is to be delivered.
bool brings_signal(const WaitStatus& status);
// Behind a clone(), whose child newborn_of() tells.
bool is_behind_clone(const WaitStatus& status);
pid_t newborn_of(pid_t parent);

// Goes on to the next stop; delivers `signal` on the way, 0 for none. Throws
// Failure(kRunTrampoline, kTargetExited) if the thread is killed.
WaitStatus run_to_stop(pid_t tid, int signal, Clock::time_point deadline);

// Goes on to the next system call or clone of a thread that has all signals blocked; SIGSTOP, which
// cannot be blocked, is passed on.
WaitStatus run_to_call(pid_t tid, Clock::time_point deadline);

// Throws Failure(kAdoptClone, kCloneRefused) if the newborn is killed before it comes to a stop.
void wait_for_birth(pid_t tid, Clock::time_point deadline);

}  // namespace reachscan::helper
