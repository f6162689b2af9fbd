// A process that shares the target's memory. One that the target has started creates the clone, so
// that the clone is not a child of the target, or another such process that outlives the pause.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>

#include "arch/system_calls.hpp"
#include "helper/stop/wait.hpp"

namespace reachscan::helper {

// Not a thread of the target. It dies with us, and is dead when this object is destroyed: until
// then, the thread that created it waits for it, unless it works without the trampoline.
class Middleman {
 public:
  // Takes control of it at its birth. Throws Failure(kCloneRefused) if it was killed. `gadget` is
  // the address of a system call instruction, for one that must not rely on the trampoline.
  Middleman(pid_t tid, Clock::time_point deadline, std::uint64_t gadget = 0);
  ~Middleman();
  Middleman(const Middleman&) = delete;
  Middleman& operator=(const Middleman&) = delete;

  pid_t tid() const { return tid_; }

  // Kills it without waiting: it may die while others work.
  void dismiss() const;

  // Makes it execute a system call in place of the one that would end it. Returns the result,
  // negative errno included, or the new process of a clone(). Calls meanwhile() while the kernel
  // executes the call.
  std::int64_t call(
      std::uint64_t number, const arch::CallArguments& arguments, Clock::time_point deadline,
      const std::function<void()>& meanwhile = [] {});

  // Makes it execute the function at `entry`, which ends at trap(). Returns false if that failed.
  bool run(std::uint64_t entry, std::uint64_t argument, std::uint64_t stack_end,
           Clock::time_point deadline);

 private:
  Middleman(pid_t tid, std::uint64_t gadget) : tid_(tid), gadget_(gadget) {}

  void go_to_gadget() const;
  WaitStatus run_to_call(Clock::time_point deadline, const std::function<void()>& meanwhile);
  arch::Registers registers() const;
  [[noreturn]] void fail() const;

  pid_t tid_;
  std::uint64_t gadget_;
};

}  // namespace reachscan::helper
