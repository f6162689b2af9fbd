// Tries the methods in order, and repeats each one while the obstacle may pass.
#include "helper/scan.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "arch/machine.hpp"
#include "helper/capture/clone_preconditions.hpp"
#include "helper/capture/expected_pause.hpp"
#include "helper/capture/snapshot.hpp"
#include "helper/live.hpp"
#include "helper/stop/pause_limit.hpp"
#include "helper/stop/preconditions.hpp"
#include "helper/stop/retry_policy.hpp"
#include "helper/stop/tracer_thread.hpp"
#include "helper/sweep/records.hpp"
#include "helper/sweep/sweep.hpp"
#include "helper/target/process.hpp"

namespace reachscan::helper {
namespace {

using wire::Step;

constexpr char kRequested[] = "asked for";
constexpr std::uint32_t kAttempts = 4;
// Whether we are a 64-bit program ourselves.
constexpr bool kHasLongWords = arch::kElfMachine != EM_NONE;

// What all methods share.
struct Session {
  const Options& options;
  const Memory& memory;
  Stream& stream;
  PauseLimit& limit;
  Clock::time_point deadline;
  bool short_words;  // whether it is a 32-bit program
};

// Takes a snapshot and sweeps it. Returns false if a thread was inside the allocator; `hint` then
// says where.
bool attempt(const SnapshotPlan& plan, const Session& session, Outcome& outcome) {
  pid_t pid = session.options.pid;
  Snapshot snapshot = take_snapshot(pid, session.memory, plan, session.deadline);
  if (!snapshot.quiet) return false;
  SweepTask task{session.options.task, handles_signals(pid)};
  task.short_words = session.short_words;
  // Other methods copy the memory into a process of another program.
  task.may_call = plan.method == Method::kClone;
  task.may_repeat = outcome.attempts < kAttempts;
  sweep(snapshot, session.options, task, session.stream, outcome, session.deadline);
  if (outcome.result.busy) return false;
  name_threads(pid, snapshot.threads);
  send_outcome(snapshot, outcome, session.stream);
  return true;
}

bool attempt_with_retries(const SnapshotPlan& plan, const Session& session, Outcome& outcome) {
  send_progress(session.stream, wire::kFreeze, 0, 0);
  for (RetryPolicy retry_policy(session.options.verbose, session.deadline);;) {
    try {
      bool done = false;
      run_as_tracer([&] { done = attempt(plan, session, outcome); });
      return done;
    } catch (const Failure& failure) {
      retry_policy.wait_out(failure);
      if (failure.code == Code::kAsleep) require_stoppable(session.options.pid, session.deadline);
    }
  }
}

void scan_by(Method method, const std::string& reason, const Session& session) {
  pid_t pid = session.options.pid;
  bool searches_dontfork = false;
  SnapshotPlan plan{method,
                    {},
                    nullptr,
                    &session.limit,
                    &searches_dontfork,
                    [&session] { session.stream.wake_reader(); },
                    session.short_words};
  if (method != Method::kCopy) plan.site = find_trampoline_site(pid, session.memory);
  abi::QuiesceHint hint{};
  for (std::uint32_t number = 1; number <= kAttempts; ++number) {
    Outcome outcome{name_of(method), reason, number, {}, {}, {}, {}};
    if (attempt_with_retries(plan, session, outcome)) return;
    if (!outcome.result.busy) continue;  // the threads did not leave the allocator
    hint = outcome.result.hint;
    plan.hint = &hint;
  }
  throw Failure(Step::kDrain, Code::kAllocatorBusy,
                "the threads of " + name_of(pid) + " did not leave the allocator in " +
                    std::to_string(kAttempts) + " attempts",
                EBUSY, pid);
}

// Returns whether another method may succeed where the clone failed: no results have been sent yet,
// and there is time.
bool passes_on(const Failure& failure, const Session& session) {
  if (session.stream.holds_results() || Clock::now() >= session.deadline) return false;
  // Refused; not set up in time; not responding; killed, probably for lack of memory.
  return failure.code == Code::kCloneRefused || failure.code == Code::kPauseTooLong ||
         failure.code == Code::kTimeout || failure.code == Code::kNoMemory;
}

// Returns a failure that followed an earlier one, which explains it.
Failure after(const std::string& reason, const Failure& failure) {
  return Failure(failure.step, failure.code, reason + "; " + failure.what(), failure.error,
                 failure.tid, failure.address);
}

// Tries the only other method that stops a process for a shorter time than a clone does.
void track_instead(const Failure& too_slow, const Session& session) {
  try {
    require_short_pause(session.options.pid, Method::kTrack, session.limit);
    scan_by(Method::kTrack, too_slow.what(), session);
  } catch (const Failure& failure) {
    bool impossible = failure.code == Code::kUnsupportedMethod || failure.code == Code::kNoMemory;
    if (!impossible || session.stream.holds_results()) throw;
    throw Failure(
        Step::kOpenTarget, Code::kPauseTooLong,
        std::string(too_slow.what()) + "; the method track cannot serve: " + failure.what(),
        failure.error, failure.tid);
  }
}

void copy_instead(const Failure& refused, const Session& session) {
  try {
    require_short_pause(session.options.pid, Method::kCopy, session.limit);
    scan_by(Method::kCopy, refused.what(), session);
  } catch (const Failure& failure) {
    throw after(refused.what(), failure);
  }
}

void scan_with_clone_or_fallback(const Session& session) {
  pid_t pid = session.options.pid;
  try {
    require_clonable(pid);
    require_orphans_collected(pid, session.deadline);
  } catch (const Failure& failure) {
    if (failure.code != Code::kCloneRefused) throw;
    return copy_instead(failure, session);
  }
  try {
    require_short_pause(pid, Method::kClone, session.limit);
  } catch (const Failure& failure) {
    if (failure.code != Code::kPauseTooLong) throw;
    return track_instead(failure, session);
  }
  try {
    scan_by(Method::kClone, "", session);
  } catch (const Failure& failure) {
    if (!passes_on(failure, session)) throw;
    copy_instead(failure, session);
  }
}

void scan_stopped(const Session& session) {
  const Options& options = session.options;
  require_stoppable(options.pid, session.deadline);
  if (options.method == "auto") return scan_with_clone_or_fallback(session);
  Method method = options.method == "copy"    ? Method::kCopy
                  : options.method == "track" ? Method::kTrack
                                              : Method::kClone;
  if (method != Method::kCopy) require_clonable(options.pid);
  require_short_pause(options.pid, method, session.limit);
  scan_by(method, method == Method::kClone ? "" : kRequested, session);
}

// The code that makes a clone does not support 32-bit programs.
void scan_short_words(const Session& session) {
  const Options& options = session.options;
  if (options.method != "auto" && options.method != "copy")
    throw Failure(Step::kOpenTarget, Code::kUnsupportedMethod,
                  name_of(options.pid) + " is a 32-bit program, which only the method copy serves",
                  0, options.pid);
  require_stoppable(options.pid, session.deadline);
  require_short_pause(options.pid, Method::kCopy, session.limit);
  scan_by(Method::kCopy, options.method == "copy" ? kRequested : "it is a 32-bit program", session);
}

void scan_with_best_method(const Session& session) {
  const Options& options = session.options;
  if (session.short_words && kHasLongWords) return scan_short_words(session);
  std::string reason = kRequested;
  if (options.method != "live") {
    try {
      return scan_stopped(session);
    } catch (const Failure& failure) {
      if (options.method != "auto" || failure.code != Code::kUnstoppable) throw;
      reason = failure.what();
    }
  }
  scan_live(reason, options, session.memory, session.stream, session.deadline);
}

}  // namespace

void scan(const Options& options, Stream& stream) {
  constexpr std::string_view kMethods[] = {"auto", "clone", "copy", "track", "live"};
  if (std::find(std::begin(kMethods), std::end(kMethods), options.method) == std::end(kMethods))
    throw Failure(Step::kOpenTarget, Code::kUnsupportedMethod,
                  "method '" + options.method + "' is not available", 0, options.pid);
  require_process(options.pid);
  require_supported(options.pid);
  Clock::time_point deadline = Clock::now() + options.timeout;
  Memory memory(options.pid);
  PauseLimit limit(options.pid, options.max_pause, stream);
  std::vector<MapEntry> mappings = read_mappings(options.pid);
  try {
    send_target(facts_of(options.pid), stream);
    send_host(stream);
    if (options.withhold_contents) send_withheld(stream);
    scan_with_best_method({options, memory, stream, limit, deadline, has_short_words(options.pid)});
  } catch (const Failure& failure) {
    // A process that executes another program loses its memory; that is then the cause of any
    // failure.
    char byte = 0;
    bool same = !mappings.empty() && memory.try_read(mappings.front().start, &byte, 1);
    if (same || failure.step == Step::kWriteStream) throw;
    bool alive = access(("/proc/" + std::to_string(options.pid) + "/exe").c_str(), F_OK) == 0;
    throw Failure(failure.step, alive ? Code::kTargetExeced : Code::kTargetExited,
                  name_of(options.pid) + (alive ? " started another program during the scan"
                                                : " ended during the scan"),
                  failure.error, failure.tid);
  }
}

}  // namespace reachscan::helper
