// A thread with a higher priority than the tracer waits on a timer and ends the helper when it
// fires.
#include "helper/stop/pause_limit.hpp"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "helper/stop/scheduling.hpp"

namespace reachscan::helper {
namespace {

// Above the tracer, which may have 1.
constexpr int kPriority = 2;

// Enough for many thousand threads.
constexpr auto kSeizing = std::chrono::milliseconds(1000);

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
  wake_after(std::chrono::nanoseconds(1));
  pthread_join(thread_, nullptr);
  close(timer_);
}

// While one of its threads executes a program, the kernel has us wait until the others have ended,
// and they cannot end before we have let them go.
void PauseLimit::guard_seizing() { watch_for(std::max(longest_, kSeizing)); }

// A single cheap system call, which wakes no thread.
Clock::time_point PauseLimit::begin() {
  Clock::time_point now = watch_for(longest_);
  steps_end_ = now + for_steps();
  return steps_end_;
}

Clock::time_point PauseLimit::watch_for(std::chrono::milliseconds time) {
  Clock::time_point now = Clock::now();
  ends_ = (now + time).time_since_epoch().count();
  wake_after(time);
  return now;
}

void PauseLimit::end() {
  ends_ = 0;
  wake_after(std::chrono::nanoseconds(0));
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
    Nanoseconds end = ends_;
    if (end == 0 || Clock::now().time_since_epoch().count() < end) continue;
    if (!ends_.compare_exchange_strong(end, 0)) continue;
    stream_.last_failure(failure(wire::Step::kHoldPause));
    _exit(1);
  }
}

// 0 means never.
void PauseLimit::wake_after(std::chrono::nanoseconds time) const {
  auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  itimerspec when{};
  when.it_value = {static_cast<time_t>(seconds.count()),
                   static_cast<long>((time - seconds).count())};
  timerfd_settime(timer_, 0, &when, nullptr);
}

}  // namespace reachscan::helper
