#include "helper/scan.hpp"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <thread>

#include "helper/inject.hpp"
#include "helper/mappings.hpp"
#include "helper/process.hpp"
#include "helper/snapshot.hpp"

namespace reachscan::helper {
namespace {

using wire::Step;

constexpr std::uint32_t kAttempts = 4;
constexpr std::uint32_t kTries = 50;
constexpr auto kBetweenTries = std::chrono::milliseconds(5);
constexpr auto kStopLimit = std::chrono::seconds(5);

// What a sweep needs to outlive the clone for: the records about the target.
struct Facts {
  Payload mappings;
  Payload modules;
};

void require_supported(pid_t pid) {
  std::string path = "/proc/" + std::to_string(pid) + "/exe";
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == EACCES || errno == EPERM)
      throw Failure(Step::kOpenTarget, "not-permitted",
                    "may not look at process " + std::to_string(pid) + ": " + std::strerror(errno),
                    errno, pid);
    bool exists = access(("/proc/" + std::to_string(pid)).c_str(), F_OK) == 0;
    throw Failure(Step::kOpenTarget, exists ? "target-exited" : "no-such-process",
                  exists ? "process " + std::to_string(pid) +
                               " has no program: it is a kernel thread or has ended"
                         : "there is no process " + std::to_string(pid),
                  errno, pid);
  }
  Elf64_Ehdr header{};
  ssize_t length = read(fd, &header, sizeof header);
  close(fd);
  if (length < static_cast<ssize_t>(sizeof header) || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_machine != EM_X86_64)
    throw Failure(Step::kOpenTarget, "unsupported-architecture",
                  "process " + std::to_string(pid) + " is not a 64-bit x86 program", 0, pid);
}

// A filter may kill the target for a clone() it never makes itself, so none is tried.
void require_clonable(pid_t pid) {
  std::string seccomp = status_field(pid, "Seccomp");
  if (!seccomp.empty() && seccomp != "0")
    throw Failure(Step::kOpenTarget, "clone-refused",
                  "process " + std::to_string(pid) +
                      " runs under a seccomp filter, which may forbid it to be cloned",
                  0, pid);
}

void send_target(pid_t pid, Stream& stream) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  Payload payload;
  payload.u32(static_cast<std::uint32_t>(pid))
      .u32(static_cast<std::uint32_t>(list_threads(pid).size()))
      .u64(static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
           static_cast<std::uint64_t>(now.tv_nsec))
      .str(thread_name(pid, pid))
      .str(executable_path(pid));
  std::vector<std::string> arguments = command_line(pid);
  payload.u32(static_cast<std::uint32_t>(arguments.size()));
  for (const std::string& argument : arguments) payload.str(argument);
  stream.record(wire::kTarget, payload);
}

void send_progress(Stream& stream, wire::Phase phase, std::uint64_t done, std::uint64_t total) {
  stream.record(wire::kProgress, Payload().u32(phase).u32(0).u64(done).u64(total));
}

Payload threads_record(pid_t pid, const std::vector<ThreadFacts>& threads) {
  Payload payload;
  payload.u32(static_cast<std::uint32_t>(threads.size()));
  for (const ThreadFacts& thread : threads) {
    std::string name;
    try {
      name = thread_name(pid, thread.tid);
    } catch (const Failure&) {
      // Ended since the snapshot; it has no name any more.
    }
    payload.u32(static_cast<std::uint32_t>(thread.tid))
        .u64(thread.state.sp)
        .u64(thread.state.pc)
        .u64(thread.state.thread_pointer)
        .str(name);
  }
  return payload;
}

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

// Runs the sweeper in the snapshot's clone, timing its phases, and kills the clone.
SweepResult sweep(Snapshot& snapshot, const Options& options, Stream& stream, Facts& facts,
                  Clock::time_point deadline) {
  std::vector<MapEntry> entries = read_mappings(snapshot.clone->pid());
  facts.mappings = mappings_record(entries);
  facts.modules = modules_record(entries, snapshot.clone->memory());
  std::vector<abi::Mapping> mappings = classify(entries, snapshot.clone->memory());
  std::vector<abi::Thread> threads;
  for (const ThreadFacts& thread : snapshot.threads) threads.push_back(thread.state);
  SweeperInputs inputs{mappings, threads, snapshot.register_words, options.list_heap,
                       options.contents_bytes};
  SweeperRun run(*snapshot.clone, inputs);

  std::string current;
  Clock::time_point since = Clock::now();
  auto lap = [&](const char* next) {
    if (!current.empty()) snapshot.phases.push_back({current, Clock::now() - since});
    current = next;
    since = Clock::now();
  };
  SweepResult result = run.run(
      stream,
      [&](wire::Phase phase, std::uint64_t done, std::uint64_t total) {
        if (current != phase_name(phase)) lap(phase_name(phase));
        send_progress(stream, phase, done, total);
        if (options.verbose) std::fprintf(stderr, "%s\n", phase_name(phase));
      },
      deadline);
  lap("");
  snapshot.clone.reset();
  return result;
}

void send_outcome(pid_t pid, const Snapshot& snapshot, std::uint32_t attempts, const Facts& facts,
                  const SweepResult& result, Stream& stream) {
  stream.record(wire::kMappings, facts.mappings);
  stream.record(wire::kModules, facts.modules);
  stream.record(wire::kThreads, threads_record(pid, snapshot.threads));
  Payload payload;
  payload.str("clone")
      .str("")
      .u64(static_cast<std::uint64_t>(snapshot.pause.count()))
      .u32(attempts)
      .u32(snapshot.drain_runs)
      .u32(static_cast<std::uint32_t>(snapshot.phases.size()));
  for (const PhaseTime& phase : snapshot.phases)
    payload.str(phase.name).u64(static_cast<std::uint64_t>(phase.duration.count()));
  stream.record(wire::kSnapshot, payload);
  if (result.unreadable_pages > 0)
    stream.warning("unreadable-memory",
                   std::to_string(result.unreadable_pages) +
                       " pages of writable memory could not be read and counted as zeros");
  if (snapshot.unforked_left_out > 0)
    stream.warning("incomplete-unforked-memory",
                   std::to_string(snapshot.unforked_left_out) +
                       " bytes that the program keeps from its clones were too many to read; what "
                       "only they point to is reported as leaked");
  const abi::Totals& totals = result.totals;
  stream.record(wire::kFinal, Payload()
                                  .u64(totals.allocations)
                                  .u64(totals.bytes)
                                  .u64(totals.leaked)
                                  .u64(totals.leaked_bytes)
                                  .u64(totals.direct)
                                  .u64(totals.direct_bytes));
}

// Some states pass by themselves: a thread inside the trampoline of an earlier scan, a signal on
// its way to every thread, a thread that ends at the wrong moment.
Snapshot take_snapshot_patiently(pid_t pid, const Memory& memory, const TrampolineSite& site,
                                 const abi::QuiesceHint* hint, Stream& stream,
                                 Clock::time_point deadline) {
  for (std::uint32_t tries = 1;; ++tries) {
    send_progress(stream, wire::kFreeze, 0, 0);
    try {
      return take_snapshot(pid, memory, site, hint, std::min(deadline, Clock::now() + kStopLimit));
    } catch (const Failure& failure) {
      if (std::strcmp(failure.code, "retry") != 0) throw;
      if (tries == kTries)
        throw Failure(failure.step, "allocator-busy", failure.what(), failure.error, failure.tid);
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
}

}  // namespace

void scan(const Options& options, Stream& stream) {
  if (options.method != "auto" && options.method != "clone")
    throw Failure(Step::kOpenTarget, "unsupported-method",
                  "method '" + options.method + "' is not available", 0, options.pid);
  Clock::time_point deadline = Clock::now() + options.timeout;
  require_supported(options.pid);
  require_clonable(options.pid);
  Memory memory(options.pid);
  TrampolineSite site = find_trampoline_site(options.pid, memory);
  send_target(options.pid, stream);

  abi::QuiesceHint hint{};
  bool drain_first = false;
  for (std::uint32_t attempt = 1; attempt <= kAttempts; ++attempt) {
    Snapshot snapshot = take_snapshot_patiently(options.pid, memory, site,
                                                drain_first ? &hint : nullptr, stream, deadline);
    if (!snapshot.quiet) continue;
    Facts facts;
    SweepResult result = sweep(snapshot, options, stream, facts, deadline);
    if (!result.busy) {
      send_outcome(options.pid, snapshot, attempt, facts, result, stream);
      return;
    }
    hint = result.hint;
    drain_first = true;
  }
  throw Failure(Step::kDrain, "allocator-busy",
                "the threads of process " + std::to_string(options.pid) +
                    " did not leave the allocator in " + std::to_string(kAttempts) + " attempts",
                EBUSY, options.pid);
}

}  // namespace reachscan::helper
