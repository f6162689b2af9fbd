// Polls waitid() with WNOWAIT, so that a stop with a signal is examined but not consumed.
#include "helper/stop/wait.hpp"

#include <sys/ptrace.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace reachscan::helper {

bool WaitStatus::stopped() const { return !gone && WIFSTOPPED(status); }
int WaitStatus::signal() const { return WSTOPSIG(status); }
int WaitStatus::event() const { return status >> 16; }

namespace {

// The stop is not consumed, so a signal that caused it is still delivered if we die.
constexpr int kLook = WSTOPPED | WEXITED | __WALL | WNOWAIT;

bool look_at(pid_t tid, wire::Step step, int options, WaitStatus& result) {
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(tid), &info, options) != 0) {
    if (errno == EINTR) return false;
    if (errno != ECHILD)
      throw Failure(step, Code::kInternal, std::string("waitid failed: ") + std::strerror(errno),
                    errno, tid);
    result = {true, 0};
    return true;
  }
  if (info.si_pid == 0) return false;
  bool stopped = info.si_code == CLD_TRAPPED || info.si_code == CLD_STOPPED;
  result = {!stopped, info.si_status << 8 | 0x7f};
  if (!stopped) waitpid(tid, nullptr, __WALL);
  return true;
}

}  // namespace

bool poll_for(pid_t tid, wire::Step step, WaitStatus& result) {
  return look_at(tid, step, kLook | WNOHANG, result);
}

bool wait_until_signal(pid_t tid, wire::Step step, WaitStatus& result) {
  return look_at(tid, step, kLook, result);
}

void wait_for_event(std::chrono::nanoseconds limit) {
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  timespec time{0, static_cast<long>(limit.count())};
  sigtimedwait(&child, nullptr, &time);
}

bool wait_until(pid_t tid, wire::Step step, Clock::time_point deadline, WaitStatus& status) {
  while (!poll_for(tid, step, status)) {
    auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now());
    if (left.count() <= 0) return false;
    // SIGCHLD is one bit: another task's event may have consumed the wake-up for this one.
    wait_for_event(std::min<std::chrono::nanoseconds>(left, std::chrono::milliseconds(20)));
  }
  return true;
}

WaitStatus wait_for(pid_t tid, wire::Step step, Clock::time_point deadline) {
  WaitStatus status{};
  if (!wait_until(tid, step, deadline, status))
    throw Failure(step, Code::kTimeout,
                  "thread " + std::to_string(tid) +
                      " did not stop in time; it may be in uninterruptible sleep",
                  ETIMEDOUT, tid);
  return status;
}

}  // namespace reachscan::helper
