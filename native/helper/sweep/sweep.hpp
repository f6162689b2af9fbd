// Runs the sweeper in a snapshot's clone, and times its phases.
#pragma once

#include "helper/capture/snapshot.hpp"
#include "helper/options.hpp"
#include "helper/sweep/inject.hpp"
#include "helper/sweep/records.hpp"

namespace reachscan::helper {

// The task of one run; `suspects` from earlier passes, if any, limits what can be a leak.
struct SweepTask {
  abi::Task task;
  bool signal_stacks;        // whether threads may have alternate signal stacks
  bool last_chance = false;  // see abi::Control
  const std::vector<abi::Suspect>* suspects = nullptr;
  bool torn = false;             // see abi::Control
  std::uint64_t written_ns = 0;  // see abi::Control
  bool short_words = false;      // whether it is a 32-bit program
  bool may_call = false;         // see abi::Control
  bool may_repeat = false;       // see abi::Control
};

// Kills the clone at the end. Throws Failure.
void sweep(Snapshot& snapshot, const Options& options, const SweepTask& task, Stream& stream,
           Outcome& outcome, Clock::time_point deadline);

}  // namespace reachscan::helper
