// Describes a snapshot to the sweeper, runs it, and times its phases.
#include "helper/sweep/sweep.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "helper/sweep/inject.hpp"
#include "helper/target/mappings.hpp"

namespace reachscan::helper {
namespace {

const char* phase_name(wire::Phase phase) {
  switch (phase) {
    case wire::kFreeze:
      return "freeze";
    case wire::kQuiesce:
      return "quiesce";
    case wire::kClone:
      return "clone";
    case wire::kEnumerate:
      return "enumerate";
    case wire::kMark:
      return "mark";
    case wire::kCollect:
      return "collect";
  }
  return "unknown";
}

bool is_own_data(const abi::Mapping& m) {
  constexpr std::uint32_t kDecisive = wire::kRead | wire::kWrite | wire::kShared;
  return (m.perms & kDecisive) == (wire::kRead | wire::kWrite);
}

// Lets the sweeper write where the target may. A copy is mapped read-only.
void allow_writing(Clone& clone, const std::vector<abi::Mapping>& mappings) {
  for (const MapEntry& entry : read_mappings(clone.pid())) {
    constexpr std::uint32_t kDecisive = wire::kRead | wire::kWrite | wire::kShared;
    if ((entry.perms & kDecisive) != wire::kRead) continue;
    bool wanted = std::any_of(mappings.begin(), mappings.end(), [&](const abi::Mapping& m) {
      return m.start < entry.end && m.end > entry.start && is_own_data(m);
    });
    if (!wanted) continue;
    std::int64_t result = clone.call(
        SYS_mprotect, {entry.start, entry.end - entry.start, PROT_READ | PROT_WRITE, 0, 0, 0});
    if (result < 0)
      throw Failure(wire::Step::kMapSweeper, wire::FailureCode::kNoMemory,
                    std::string("the copy of the target cannot be written to: ") +
                        std::strerror(static_cast<int>(-result)),
                    static_cast<int>(-result), clone.pid(), entry.start);
  }
}

}  // namespace

void sweep(Snapshot& snapshot, const Options& options, const SweepTask& task, Stream& stream,
           Outcome& outcome, Clock::time_point deadline) {
  std::vector<std::uint64_t> bss_ends =
      find_bss_ends(snapshot.mappings, snapshot.resident_pages, snapshot.clone->memory());
  outcome.mappings = mappings_record(snapshot.mappings, bss_ends);
  outcome.absent = absent_record(snapshot.resident_pages);
  outcome.modules =
      modules_record(snapshot.mappings, snapshot.resident_pages, snapshot.clone->memory());
  std::vector<abi::Mapping> mappings =
      classify(snapshot.mappings, bss_ends, snapshot.resident_pages);
  std::vector<abi::Thread> threads;
  for (const ThreadFacts& thread : snapshot.threads) threads.push_back(thread.state);
  SweeperInputs inputs{snapshot.mappings,
                       mappings,
                       threads,
                       snapshot.words.values,
                       task.signal_stacks ? threads.size() : 0,
                       options,
                       task.task,
                       task.last_chance,
                       task.suspects,
                       task.torn,
                       task.past};
  std::string current;
  Clock::time_point since = Clock::now();
  auto lap = [&](const char* next) {
    if (!current.empty()) snapshot.phases.push_back({current, Clock::now() - since});
    current = next;
    since = Clock::now();
  };
  auto on_phase = [&](wire::Phase phase, std::uint64_t done, std::uint64_t total) {
    send_progress(stream, phase, done, total);
    if (current == phase_name(phase)) return;
    lap(phase_name(phase));
    if (options.verbose) std::fprintf(stderr, "%s\n", phase_name(phase));
  };
  auto run = [&](Form form) {
    return SweeperRun(*snapshot.clone, inputs, form).run(stream, on_phase, deadline);
  };
  if (options.python) allow_writing(*snapshot.clone, mappings);
  outcome.result = run(task.short_words ? Form::kShort : Form::kCommon);
  if (outcome.result.needs_fine) {
    std::uint64_t unreadable = outcome.result.unreadable_pages;
    outcome.result = run(Form::kFine);
    outcome.result.unreadable_pages += unreadable;
  }
  lap("");
  if (snapshot.on_quota) snapshot.quota_used = snapshot.clone->processor_time();
  snapshot.clone.reset();
}

}  // namespace reachscan::helper
