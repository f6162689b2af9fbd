// Waits for one traced task, with a limit.
#pragma once

#include <sys/types.h>

#include <chrono>

#include "helper/failure.hpp"

namespace reachscan::helper {

using Clock = std::chrono::steady_clock;

struct WaitStatus {
  bool gone;   // exited, killed, or no longer our child
  int status;  // of a stop, as from waitpid()

  bool stopped() const;
  int signal() const;  // of the stop
  int event() const;   // PTRACE_EVENT_*, 0 for other stops
};

// Waits for a stop or the end of exactly this task (waiting for any task takes time in proportion
// to their number). Sleeps, so that the task can use this processor. Requires SIGCHLD to be
// blocked. Returns false at the deadline.
bool wait_until(pid_t tid, wire::Step step, Clock::time_point deadline, WaitStatus& status);

// The same, but throws Failure(step, kTimeout) at the deadline.
WaitStatus wait_for(pid_t tid, wire::Step step, Clock::time_point deadline);

// The same without waiting: returns false if the task has nothing to report yet.
bool poll_for(pid_t tid, wire::Step step, WaitStatus& status);

// The same, but returns false if a signal comes first.
bool wait_until_signal(pid_t tid, wire::Step step, WaitStatus& status);

// Sleeps until something has happened to any traced task, or for `limit` (below a second).
void wait_for_event(std::chrono::nanoseconds limit);

}  // namespace reachscan::helper
