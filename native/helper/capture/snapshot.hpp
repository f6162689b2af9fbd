// One pause: stops the target, waits until the allocator is quiescent, clones or copies it, resumes
// it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "helper/capture/clone.hpp"
#include "helper/capture/dontfork_memory.hpp"
#include "helper/capture/method.hpp"
#include "helper/capture/trampoline.hpp"
#include "helper/stop/freeze.hpp"
#include "helper/target/kernel_roots.hpp"
#include "helper/target/process.hpp"
#include "helper/target/resident_pages.hpp"
#include "wire/sweeper_abi.hpp"

namespace reachscan::helper {

struct PhaseTime {
  std::string name;
  std::chrono::nanoseconds duration;
};

struct ThreadFacts {
  pid_t tid;
  abi::Thread state;
  std::string name;  // filled in when there is time; empty if unknown
};

// Derived from the registers.
ThreadFacts facts_of(pid_t tid, const arch::Registers& registers);

struct Snapshot {
  std::unique_ptr<Clone> clone;
  std::vector<MapEntry> mappings;
  ResidentPages resident_pages;
  std::vector<ThreadFacts> threads;
  RegisterWords words;
  std::chrono::nanoseconds pause{};
  std::uint32_t drain_runs = 0;
  bool quiet = true;  // false: the threads did not leave the allocator in time; there is no clone
  std::uint64_t dontfork_left_out = 0;  // bytes that are in neither clone nor copy
  // A sentence about memory that could not be read, if any.
  std::string missing_memory;
  bool on_quota = false;  // the clone uses the CPU quota of the target's control group
  std::chrono::nanoseconds quota_used{};
  // Clauses about what only the kernel may hold.
  std::vector<std::string> unread_in_kernel;
  std::vector<PhaseTime> phases;

  // The two observations precede and follow the reading of the memory: each of them contributes
  // roots, so that everything registered at that time is in one of them.
  void add_kernel_roots(const KernelRoots& before, const KernelRoots& after);
};

struct SnapshotPlan {
  Method method;
  TrampolineSite site;           // unless it is a copy
  const abi::QuiesceHint* hint;  // null: do not drain
  PauseLimit* limit;
  bool* searches_dontfork;         // set by an attempt that missed memory, for the next one
  std::function<void()> released;  // called when the target runs again
  bool short_words = false;        // whether it is a 32-bit program
};

// With a hint, first lets the threads leave the allocator. Throws Failure; the target then runs
// again.
Snapshot take_snapshot(pid_t pid, const Memory& memory, const SnapshotPlan& plan,
                       Clock::time_point deadline);

}  // namespace reachscan::helper
