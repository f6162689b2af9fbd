// Describes a snapshot to the sweeper, runs it, and times its phases.
#include "helper/sweep/sweep.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>

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

// Whether it is a C library, or the part of one that held the threads before glibc 2.34.
bool is_c_library(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  constexpr const char* kNames[] = {"libc.so.", "libc-2.", "libpthread-2.", "ld-musl-"};
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&](const char* start) { return name.starts_with(start); });
}

// Whether the thread sleeps in a system call that the C library made for its caller.
bool sleeps_in_c_library(const abi::Thread& thread, const std::vector<MapEntry>& mappings) {
  if (thread.sleep == abi::Sleep::kNoOrUnknown) return false;
  auto after =
      std::upper_bound(mappings.begin(), mappings.end(), thread.pc,
                       [](std::uint64_t pc, const MapEntry& entry) { return pc < entry.start; });
  return after != mappings.begin() && thread.pc < (after - 1)->end &&
         is_c_library((after - 1)->path);
}

// What a caller needs after a call is not in registers that calls may change. In a thread that
// sleeps in such a call, they are left over.
std::vector<abi::Thread> describe_threads(const Snapshot& snapshot) {
  std::map<pid_t, const RegisterWords::Owner*> owners;
  for (const RegisterWords::Owner& owner : snapshot.words.owners) owners[owner.tid] = &owner;
  std::vector<abi::Thread> all;
  for (const ThreadFacts& thread : snapshot.threads) {
    abi::Thread& state = all.emplace_back(thread.state);
    auto owner = owners.find(thread.tid);
    bool known = arch::kCallsClobberVectors && owner != owners.end();
    if (!known || !sleeps_in_c_library(state, snapshot.mappings)) continue;
    state.scratch_end = owner->second->first + owner->second->count;
    state.scratch_start = state.scratch_end - owner->second->vectors;
  }
  return all;
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
  std::vector<abi::Thread> threads = describe_threads(snapshot);
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
                       task.written_ns,
                       task.may_call,
                       task.may_repeat};
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
