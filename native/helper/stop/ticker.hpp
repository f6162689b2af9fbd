// Interrupts what a thread waits for, so that it can look whether to go on. A thread that waits for
// one task in the kernel is woken by that task alone; one that waits for a signal, by every task.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>

#ifndef sigev_notify_thread_id  // glibc
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace reachscan::helper {

class Ticker {
 public:
  // For the calling thread. Does nothing if the kernel refuses a timer.
  Ticker() {
    struct sigaction action {};
    action.sa_handler = [](int) {};  // no SA_RESTART: calls return EINTR
    sigaction(kSignal, &action, nullptr);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, kSignal);
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = kSignal;
    event.sigev_notify_thread_id = static_cast<pid_t>(syscall(SYS_gettid));
    exists_ = timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
  }
  ~Ticker() {
    if (exists_) timer_delete(timer_);
  }
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

  // While it exists, each wait is interrupted within about this time, which is less than a second.
  class Run {
   public:
    Run(Ticker& ticker, std::chrono::nanoseconds interval) : ticker_(ticker) {
      ticker.is_running_ = ticker.set(std::max(interval, kShortest));
    }
    ~Run() {
      if (ticker_.is_running_) ticker_.set({});
      ticker_.is_running_ = false;
    }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

   private:
    static constexpr std::chrono::nanoseconds kShortest = std::chrono::milliseconds(1);
    Ticker& ticker_;
  };

  bool is_running() const { return is_running_; }

 private:
  static constexpr int kSignal = SIGALRM;

  bool set(std::chrono::nanoseconds interval) const {
    timespec time{0, static_cast<long>(interval.count())};
    itimerspec setting{time, time};
    return exists_ && timer_settime(timer_, 0, &setting, nullptr) == 0;
  }

  timer_t timer_{};
  bool exists_ = false;
  bool is_running_ = false;
};

}  // namespace reachscan::helper
