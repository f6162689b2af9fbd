// Which failures are transient, and how long to wait for them to pass.
#pragma once

#include <optional>

#include "helper/failure.hpp"
#include "helper/stop/wait.hpp"

namespace reachscan::helper {

class RetryPolicy {
 public:
  RetryPolicy(bool verbose, Clock::time_point deadline) : verbose_(verbose), deadline_(deadline) {}

  // Called with the failure of a try: waits a little, or throws the failure to report to the user
  // if it is of another kind or has not passed in time. If a try runs out of time after a state of
  // the target was waited for, that state is what the user learns of.
  void wait_out(const Failure& failure);

 private:
  void wait_for_its_end(const Failure& failure);
  [[noreturn]] static void give_up_on(const Failure& failure);

  bool verbose_;
  Clock::time_point deadline_;
  std::uint32_t tries_ = 0;
  std::uint32_t sleeps_ = 0;
  std::optional<Failure> awaited_;  // the last failure whose cause only the target can end
  Clock::time_point first_seen_{};  // when the first such failure occurred
};

}  // namespace reachscan::helper
