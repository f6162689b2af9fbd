// Lets work be done in the target's memory while the target runs.
#pragma once

#include <functional>
#include <memory>

#include "helper/recording/session.hpp"

namespace reachscan::helper {

// A process that shares the memory of the target and is no child of it. It holds nothing open, and
// dies with us. One thread of the target is stopped for a moment to start it.
class Worker {
 public:
  // Calls look(freeze) while that thread is stopped. Returns null where none can be started, or
  // where others could not tell that it is at work.
  static std::unique_ptr<Worker> start(
      const RecordingSession& session, const std::function<void(Freeze&)>& look = [](Freeze&) {});

  Middleman& hands() { return *hands_; }

  // How long that thread was stopped.
  std::chrono::nanoseconds pause() const { return pause_; }

  // Throws Failure(kTargetExited) if the target has executed another program since then.
  void require_same_program() const;

  // Returns whether another process is at work in the target's memory. `own` may be null.
  static bool has_other(pid_t pid, const Worker* own);

 private:
  Worker(const RecordingSession& session, const std::function<void(Freeze&)>& look);

  pid_t pid_;
  std::chrono::nanoseconds pause_{};
  std::unique_ptr<Middleman> hands_;
};

}  // namespace reachscan::helper
