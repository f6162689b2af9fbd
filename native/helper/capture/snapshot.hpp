// One pause: stop the target, let the allocator come to rest, capture, clone or copy, let it go.
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
  std::string name;  // filled in when there is time; empty if it is not known
};

// As the registers say.
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
  std::uint64_t dontfork_left_out = 0;  // bytes that neither clone nor copy could bring along
  // Memory that nobody could read, if there was any: a sentence about it.
  std::string unseen_memory;
  bool on_quota = false;  // the clone uses what the target's control group may use
  std::chrono::nanoseconds quota_used{};
  // What only the kernel may hold: clauses about it.
  std::vector<std::string> unread_in_kernel;
  std::vector<PhaseTime> phases;

  // The two looks were taken before and after the memory was read: what was registered then is in
  // one of them.
  void add_kernel_roots(const KernelRoots& before, const KernelRoots& after);
};

struct SnapshotPlan {
  Method method;
  TrampolineSite site;           // unless it is a copy
  const abi::QuiesceHint* hint;  // null: do not drain
  PauseLimit* limit;
  bool* looks_for_dontfork;        // set by an attempt that had missed memory; for the next one
  std::function<void()> released;  // called when the target runs again
  bool short_words = false;        // whether it is a 32-bit program
};

// With a hint, the threads are first let out of the allocator. Throws Failure; the target then runs
// again.
Snapshot take_snapshot(pid_t pid, const Memory& memory, const SnapshotPlan& plan,
                       Clock::time_point deadline);

}  // namespace reachscan::helper
