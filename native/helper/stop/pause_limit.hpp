// Limits every pause of the target, in two stages. Well before the limit, the steps of the pause
// give up in an orderly way: they wait no longer than begin() says. At the limit, a thread that
// only waits for this moment ends the process, whatever system call the tracer is stuck in, and the
// kernel releases everything that was traced.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>

#include "helper/failure.hpp"
#include "helper/stop/wait.hpp"
#include "helper/stream.hpp"

namespace reachscan::helper {

class PauseLimit {
 public:
  // Starts the thread, so that a pause need not. `stream` gets the failure record of the second
  // stage; nothing else writes to it during a pause.
  PauseLimit(pid_t pid, std::chrono::milliseconds longest, Stream& stream);
  ~PauseLimit();
  PauseLimit(const PauseLimit&) = delete;
  PauseLimit& operator=(const PauseLimit&) = delete;

  // Limits the time before the pause, in which threads are seized.
  void guard_seizing();

  // Starts the pause. Returns the time by which its steps must be done.
  Clock::time_point begin();
  // The target is running again.
  void end();

  // Returns whether the time for the steps is over.
  bool is_over() const { return Clock::now() >= steps_end_; }
  Failure failure(wire::Step step) const;

  std::chrono::milliseconds longest() const { return longest_; }
  // The share of the limit for the steps; the rest is for detaching.
  std::chrono::nanoseconds for_steps() const { return longest_ * 4 / 5; }

 private:
  using Nanoseconds = std::chrono::nanoseconds::rep;

  void watch();
  // Returns the time from which on it counts.
  Clock::time_point watch_for(std::chrono::milliseconds time, std::chrono::milliseconds interval);
  void wake_every(std::chrono::nanoseconds time) const;

  pid_t pid_;
  std::chrono::milliseconds longest_;
  Stream& stream_;
  int timer_;
  pthread_t thread_{};
  Clock::time_point steps_end_{};
  std::atomic<Nanoseconds> ends_{0};  // of the pause, by Clock; 0 while the target runs
  std::atomic<bool> seizing_{false};
  std::atomic<bool> dismissed_{false};
};

}  // namespace reachscan::helper
