// Calls functions of the target in its clone, for the sweeper.
//
// Nothing that they do may reach the target: memory that the clone shares with others is protected
// first, and no system call is made.
#pragma once

#include "helper/capture/clone.hpp"
#include "wire/sweeper_abi.hpp"

namespace reachscan::helper {

class TargetCalls {
 public:
  explicit TargetCalls(Clone& clone) : clone_(clone) {}

  // Runs the function, at most until the deadline, and fills in the outcome. The clone's first
  // thread is then as before, except for its vector registers. Throws Failure(kNoMemory) if the
  // clone dies.
  void make(abi::Call& call, Clock::time_point deadline);

 private:
  bool protect_shared_memory();
  void start(const abi::Call& call, arch::Registers registers);
  [[noreturn]] void fail_killed() const;
  // Each returns whether the call has ended.
  bool handle_stop(abi::Call& call, WaitStatus status);
  bool handle_system_call(abi::Call& call, arch::Registers registers);
  void stop_thread();

  Clone& clone_;
  bool protected_ = false;
};

}  // namespace reachscan::helper
