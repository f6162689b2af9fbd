// Stops every thread of the target and resumes them all, whatever happens in between. Must be used
// on a thread of its own (tracer_thread.hpp).
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "arch/registers.hpp"
#include "helper/failure.hpp"
#include "helper/stop/pause_limit.hpp"
#include "helper/stop/ticker.hpp"
#include "helper/stop/wait.hpp"
#include "helper/target/owned_descriptor.hpp"
#include "helper/target/seen_thread.hpp"

namespace reachscan::helper {

struct StoppedThread {
  pid_t tid;
  int pending_signal = 0;  // intercepted; delivered when the thread is released
  arch::Registers registers{};
};

// Words that are roots but not in memory.
struct RegisterWords {
  struct Owner {
    std::uint32_t first;
    std::uint32_t count;
    pid_t tid;              // 0: the kernel holds them
    std::uint32_t vectors;  // the last words, which are the state of vector registers
  };

  // Assigns the words added since the last owner to this thread.
  void belong_to(pid_t tid, std::size_t vectors = 0) {
    std::uint32_t first = owners.empty() ? 0 : owners.back().first + owners.back().count;
    owners.push_back({first, static_cast<std::uint32_t>(values.size()) - first, tid,
                      static_cast<std::uint32_t>(vectors)});
  }

  // Reserves room for the words of this many threads, in memory that has been touched.
  void expect(std::size_t threads);

  std::vector<std::uint64_t> values;
  std::vector<Owner> owners;
};

// Which threads of the target are stopped.
enum class Reach { kAllThreads, kFirstThread };

// The target is stopped from construction to release(). The destructor releases what is left.
class Freeze {
 public:
  // Seizes all threads, interrupts all, then waits for each; repeats this for threads created
  // meanwhile. Then reads their general registers and undoes the EINTR that the stop itself caused.
  Freeze(pid_t pid, PauseLimit& limit, Clock::time_point deadline,
         Reach reach = Reach::kAllThreads);
  ~Freeze();
  Freeze(const Freeze&) = delete;
  Freeze& operator=(const Freeze&) = delete;

  // Runs one thread for a moment while all others stay stopped. Returns false if it exited.
  bool run_briefly(StoppedThread& thread, std::chrono::nanoseconds duration,
                   Clock::time_point deadline);

  // On some processors the kernel reveals only when a thread resumes which call it restarts. Runs
  // such a thread to its call and reads its registers again. Returns false if a signal arrived
  // meanwhile.
  bool settle_call(StoppedThread& thread);

  // Stops threads that were created by briefly running ones.
  void stop_new_threads(Clock::time_point deadline);

  // Returns all register contents, including vector state, as words. Must be called once.
  RegisterWords read_register_words();

  // Resumes all threads.
  void release();

  pid_t pid() const { return pid_; }
  Reach reach() const { return reach_; }
  std::vector<StoppedThread>& threads() { return threads_; }
  bool has_filtered_thread() const { return !filtered_.empty(); }
  Clock::time_point began() const { return began_; }
  // Everything done while the target is stopped must finish by then.
  Clock::time_point deadline() const { return deadline_; }
  std::chrono::nanoseconds pause() const { return ended_ - began_; }

 private:
  enum class State { kSeized, kInterrupted, kStopped, kGone, kLeftAlone };

  bool seize_new_threads();
  bool may_have_new_threads() const;
  void stop_seized(Clock::time_point deadline);
  bool interrupt(pid_t tid);
  bool wait_a_while(pid_t tid, Clock::time_point deadline, WaitStatus& status) const;
  WaitStatus wait_for_stop(pid_t tid, Clock::time_point deadline) const;
  bool wait_until_stopped(StoppedThread& thread, Clock::time_point deadline);
  void capture(StoppedThread& thread);
  bool may_restart(const StoppedThread& thread) const;
  void repair_call(StoppedThread& thread, std::uint64_t first_argument);
  bool continues_call(pid_t tid) const;
  std::optional<std::uint64_t> first_argument_of(const StoppedThread& thread) const;
  void release_if_foreign(pid_t parent, Clock::time_point deadline);
  void detach(StoppedThread& thread);
  void resume_target();

  struct Seen {
    ObservedThread thread;
    std::uint64_t sleeps;
  };

  pid_t pid_;
  Reach reach_;
  PauseLimit& limit_;
  Clock::time_point deadline_;
  Ticker ticker_;
  OwnedDescriptor thread_folder_;
  std::map<pid_t, State> states_;
  // Under seccomp filters right before the pause: asking during it takes longer than stopping.
  std::set<pid_t> filtered_;
  std::map<pid_t, Seen> seen_;  // state before they were stopped, where needed
  std::vector<StoppedThread> threads_;
  RegisterWords words_;
  Clock::time_point began_{};
  Clock::time_point ended_{};
};

}  // namespace reachscan::helper
