// Resumes one task up to its next stop, and classifies that stop.
#include "helper/stop/stops.hpp"

#include <sys/ptrace.h>

#include <cerrno>
#include <csignal>

namespace reachscan::helper {

using wire::Step;

void refuse_clone(pid_t tid, const std::string& why, int error) {
  throw Failure(Step::kRunTrampoline, Code::kCloneRefused, why, error, tid);
}

bool is_at_call(const WaitStatus& status) { return status.signal() == (SIGTRAP | 0x80); }

bool is_fault_signal(int signal) {
  return signal == SIGTRAP || signal == SIGSEGV || signal == SIGBUS || signal == SIGILL ||
         signal == SIGFPE;
}

bool brings_signal(const WaitStatus& status) { return status.event() == 0 && !is_at_call(status); }

bool is_after_clone(const WaitStatus& status) { return status.event() == PTRACE_EVENT_CLONE; }

pid_t child_of_clone(pid_t parent) {
  unsigned long born = 0;
  ptrace(PTRACE_GETEVENTMSG, parent, nullptr, &born);
  return static_cast<pid_t>(born);
}

WaitStatus run_to_stop(pid_t tid, int signal, Clock::time_point deadline) {
  if (ptrace(PTRACE_SYSCALL, tid, nullptr, static_cast<long>(signal)) == 0) {
    WaitStatus status = wait_for(tid, Step::kRunTrampoline, deadline);
    if (status.stopped()) return status;
  }
  throw Failure(Step::kRunTrampoline, Code::kTargetExited,
                "a thread ended while the target was being cloned", errno, tid);
}

WaitStatus run_to_call(pid_t tid, Clock::time_point deadline) {
  for (int signal = 0;;) {
    WaitStatus status = run_to_stop(tid, signal, deadline);
    if (is_at_call(status) || is_after_clone(status)) return status;
    signal = brings_signal(status) ? status.signal() : 0;
  }
}

void wait_for_first_stop(pid_t tid, Clock::time_point deadline) {
  if (!wait_for(tid, Step::kAdoptClone, deadline).stopped())
    throw Failure(Step::kAdoptClone, Code::kCloneRefused, "the clone was killed at its birth", 0,
                  tid);
}

}  // namespace reachscan::helper
