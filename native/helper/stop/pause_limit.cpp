// A thread with a higher priority than the tracer waits on a timer and ends the helper when it
// fires.
#include "helper/stop/pause_limit.hpp"

#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "helper/stop/scheduling.hpp"
#include "helper/target/process.hpp"

namespace reachscan::helper {
namespace {

// Above the tracer, which may have 1.
constexpr int kPriority = 2;

// Enough for many thousand threads.
constexpr auto kSeizing = std::chrono::milliseconds(1000);
constexpr auto kCollectInterval = std::chrono::milliseconds(20);

// Returns none if the process has ended, which the tracer will notice.
std::vector<pid_t> threads_left(pid_t pid) {
  try {
    return list_threads(pid);
  } catch (const Failure&) {
    return {};
  }
}

// Bare calls: what happens at any time must not count in tests that count calls. A stop of a traced
// thread is reported whatever is asked for, so it must not be consumed.
void collect_ended(pid_t pid) {
  constexpr int kLook = WEXITED | WSTOPPED | WNOHANG | WNOWAIT | __WALL;
  for (pid_t tid : threads_left(pid)) {
    siginfo_t info{};
    if (syscall(SYS_waitid, P_PID, tid, &info, kLook, nullptr) != 0 || info.si_pid == 0) continue;
    bool ended = info.si_code != CLD_TRAPPED && info.si_code != CLD_STOPPED;
    if (ended) syscall(SYS_waitid, P_PID, tid, nullptr, WEXITED | WNOHANG | __WALL, nullptr);
  }
}

[[noreturn]] void fail_to_start(pid_t pid, int error) {
  throw Failure(wire::Step::kHoldPause, Code::kInternal,
                std::string("cannot watch over the pause: ") + std::strerror(error), error, pid);
}

}  // namespace

PauseLimit::PauseLimit(pid_t pid, std::chrono::milliseconds longest, Stream& stream)
    : pid_(pid),
      longest_(longest),
      stream_(stream),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)) {
  if (timer_ < 0) fail_to_start(pid, errno);
  auto run = [](void* self) -> void* {
    static_cast<PauseLimit*>(self)->watch();
    return nullptr;
  };
  int error = pthread_create(&thread_, nullptr, run, this);
  if (error == 0) return;
  close(timer_);
  fail_to_start(pid, error);
}

PauseLimit::~PauseLimit() {
  dismissed_ = true;
  wake_every(std::chrono::nanoseconds(1));
  pthread_join(thread_, nullptr);
  close(timer_);
}

// While one of its threads executes a program, PTRACE_SEIZE waits for that thread, and it waits for
// us to collect those of the others that are traced and have ended.
void PauseLimit::guard_seizing() {
  seizing_ = true;
  watch_for(std::max(longest_, kSeizing), kCollectInterval);
}

// A single cheap system call, which wakes no thread.
Clock::time_point PauseLimit::begin() {
  seizing_ = false;
  Clock::time_point now = watch_for(longest_, longest_);
  steps_end_ = now + for_steps();
  return steps_end_;
}

Clock::time_point PauseLimit::watch_for(std::chrono::milliseconds time,
                                        std::chrono::milliseconds interval) {
  Clock::time_point now = Clock::now();
  ends_ = (now + time).time_since_epoch().count();
  wake_every(interval);
  return now;
}

void PauseLimit::end() {
  seizing_ = false;
  ends_ = 0;
  wake_every(std::chrono::nanoseconds(0));
}

Failure PauseLimit::failure(wire::Step step) const {
  return Failure(step, Code::kPauseTooLong,
                 "process " + std::to_string(pid_) + " would have been stopped for longer than " +
                     std::to_string(longest_.count()) + " ms; it was let go",
                 ETIMEDOUT, pid_);
}

void PauseLimit::watch() {
  schedule(0, SCHED_FIFO, kPriority);
  while (!dismissed_) {
    std::uint64_t times = 0;
    if (read(timer_, &times, sizeof times) != sizeof times) continue;
    if (seizing_) collect_ended(pid_);
    Nanoseconds end = ends_;
    if (end == 0 || Clock::now().time_since_epoch().count() < end) continue;
    if (!ends_.compare_exchange_strong(end, 0)) continue;
    stream_.last_failure(failure(wire::Step::kHoldPause));
    _exit(1);
  }
}

// 0 means never.
void PauseLimit::wake_every(std::chrono::nanoseconds time) const {
  auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  timespec first{static_cast<time_t>(seconds.count()), static_cast<long>((time - seconds).count())};
  itimerspec when{first, first};
  timerfd_settime(timer_, 0, &when, nullptr);
}

}  // namespace reachscan::helper
