// Stops every thread of the target and lets them go again, whatever happens in between. To be used
// on a thread of its own (tracer_thread.hpp).
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <vector>

#include "arch/registers.hpp"
#include "helper/failure.hpp"
#include "helper/stop/pause_limit.hpp"
#include "helper/stop/wait.hpp"
#include "helper/target/seen_thread.hpp"

namespace reachscan::helper {

struct StoppedThread {
  pid_t tid;
  int pending_signal = 0;  // found on its way to the thread; delivered when the thread is released
  arch::Registers registers{};
};

// Between construction and release() the target is stopped. The destructor releases what is left.
// Words that are roots but in no memory.
struct RegisterWords {
  struct Owner {
    std::uint32_t first;
    std::uint32_t count;
    pid_t tid;  // 0: the kernel holds them
  };

  // What was added since the last owner is this one's.
  void belong_to(pid_t tid) {
    std::uint32_t first = owners.empty() ? 0 : owners.back().first + owners.back().count;
    owners.push_back({first, static_cast<std::uint32_t>(values.size()) - first, tid});
  }

  // Has room for those of so many threads, in memory that was touched.
  void expect(std::size_t threads);

  std::vector<std::uint64_t> values;
  std::vector<Owner> owners;
};

class Freeze {
 public:
  // Seizes all threads, then interrupts all, then waits for each; repeats for threads born
  // meanwhile. Then reads their general registers and undoes the EINTR that the stop itself caused.
  Freeze(pid_t pid, PauseLimit& limit, Clock::time_point deadline);
  ~Freeze();
  Freeze(const Freeze&) = delete;
  Freeze& operator=(const Freeze&) = delete;

  // Lets one thread go on for a moment while all others stay stopped. False if it ended.
  bool run_briefly(StoppedThread& thread, std::chrono::nanoseconds duration,
                   Clock::time_point deadline);

  // Some kernels tell only on a thread's way out what it is to call again. Leads it there, if this
  // is one, and takes its registers anew. False if a signal came in between.
  bool settle_call(StoppedThread& thread);

  // Stops the threads that were born of briefly running ones.
  void stop_newborn(Clock::time_point deadline);

  // All register contents, vector state included, as words. To be called once.
  RegisterWords read_register_words();

  // Lets all threads go.
  void release();

  pid_t pid() const { return pid_; }
  std::vector<StoppedThread>& threads() { return threads_; }
  Clock::time_point began() const { return began_; }
  // By which all that happens while the target is stopped has to be done.
  Clock::time_point deadline() const { return deadline_; }
  std::chrono::nanoseconds pause() const { return ended_ - began_; }

 private:
  enum class State { kSeized, kInterrupted, kStopped, kGone, kLeftAlone };

  bool seize_new_threads();
  bool may_have_new_threads() const;
  void stop_seized(Clock::time_point deadline);
  bool interrupt(pid_t tid);
  WaitStatus wait_for_stop(pid_t tid, Clock::time_point deadline) const;
  bool wait_until_stopped(StoppedThread& thread, Clock::time_point deadline);
  void capture(StoppedThread& thread);
  std::optional<std::uint64_t> first_argument_of(const StoppedThread& thread) const;
  void release_if_foreign(pid_t parent, Clock::time_point deadline);
  void detach(StoppedThread& thread);
  void let_go();

  pid_t pid_;
  PauseLimit& limit_;
  Clock::time_point deadline_;
  std::map<pid_t, State> states_;
  std::map<pid_t, SeenThread> seen_;  // before they were stopped, where that is needed
  std::vector<StoppedThread> threads_;
  RegisterWords words_;
  Clock::time_point began_{};
  Clock::time_point ended_{};
};

}  // namespace reachscan::helper
