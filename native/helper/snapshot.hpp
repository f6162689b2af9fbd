// One pause: stop the target, let the allocator come to rest, capture, clone, let the target go.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "helper/clone.hpp"
#include "helper/freeze.hpp"
#include "helper/trampoline.hpp"
#include "wire/sweeper_abi.hpp"

namespace reachscan::helper {

struct PhaseTime {
  std::string name;
  std::chrono::nanoseconds duration;
};

struct ThreadFacts {
  pid_t tid;
  abi::Thread state;
};

struct Snapshot {
  std::unique_ptr<Clone> clone;
  std::vector<ThreadFacts> threads;
  std::vector<std::uint64_t> register_words;
  std::chrono::nanoseconds pause{};
  std::uint32_t drain_runs = 0;
  bool quiet = true;  // false: the threads did not leave the allocator in time; there is no clone
  std::vector<PhaseTime> phases;
};

// With a hint, the threads are first stepped out of the allocator. Throws Failure; the target then
// runs again.
Snapshot take_snapshot(pid_t pid, const Memory& memory, const TrampolineSite& site,
                       const abi::QuiesceHint* hint, Clock::time_point deadline);

}  // namespace reachscan::helper
