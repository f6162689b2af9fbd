// Which failures pass by themselves, and how long that is waited for.
#pragma once

#include <sys/types.h>

#include "helper/failure.hpp"
#include "helper/stop/wait.hpp"

namespace reachscan::helper {

// A thread inside the trampoline of an earlier scan, a signal on its way to every thread, a thread
// that ends at the wrong moment: over after some milliseconds.
constexpr char kRetry[] = "retry";
// Another reachscan holds the target: over when its pause is.
constexpr char kBeingScanned[] = "being-scanned";

// The loader is at work: nothing is allocated yet.
constexpr char kStartingUp[] = "starting-up";

// A thread waits for a disk or a lock in the kernel, and does not stop meanwhile.
constexpr char kAsleep[] = "asleep";

// A thread does not stop: nothing that stops the target can serve.
constexpr char kUnstoppable[] = "unstoppable";

class RetryPolicy {
 public:
  RetryPolicy(bool verbose, Clock::time_point deadline) : verbose_(verbose), deadline_(deadline) {}

  // Call it with what a try has failed with: it waits a little, or throws what the user is to be
  // told if the failure is of another kind or has not passed in time.
  void wait_out(const Failure& failure);

 private:
  void wait_for_its_end(const Failure& failure);
  [[noreturn]] static void give_up_on(const Failure& failure);

  bool verbose_;
  Clock::time_point deadline_;
  std::uint32_t tries_ = 0;
  std::uint32_t sleeps_ = 0;
  Clock::time_point first_seen_{};
};

}  // namespace reachscan::helper
