#include "helper/scan.hpp"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <thread>

#include "helper/clonable.hpp"
#include "helper/live.hpp"
#include "helper/patience.hpp"
#include "helper/process.hpp"
#include "helper/records.hpp"
#include "helper/snapshot.hpp"
#include "helper/sweep.hpp"
#include "helper/tracer_thread.hpp"

namespace reachscan::helper {
namespace {

using wire::Step;

constexpr char kAskedFor[] = "asked for";
constexpr std::uint32_t kAttempts = 4;
constexpr std::uint32_t kLooks = 4;
constexpr auto kBetweenLooks = std::chrono::milliseconds(10);

std::string name_of(pid_t pid) { return "process " + std::to_string(pid); }

const char* name_of(Method method) {
  switch (method) {
    case Method::kClone:
      return "clone";
    case Method::kCopy:
      return "copy";
    case Method::kTrack:
      return "track";
  }
  return "unknown";
}

void require_supported(pid_t pid) {
  std::string path = "/proc/" + std::to_string(pid) + "/exe";
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == EACCES || errno == EPERM)
      throw Failure(Step::kOpenTarget, "not-permitted",
                    "may not look at " + name_of(pid) + ": " + std::strerror(errno), errno, pid);
    bool exists = access(("/proc/" + std::to_string(pid)).c_str(), F_OK) == 0;
    throw Failure(Step::kOpenTarget, exists ? "target-exited" : "no-such-process",
                  exists ? name_of(pid) + " has no program: it is a kernel thread or has ended"
                         : "there is no process " + std::to_string(pid),
                  errno, pid);
  }
  Elf64_Ehdr header{};
  ssize_t length = read(fd, &header, sizeof header);
  close(fd);
  if (length < static_cast<ssize_t>(sizeof header) || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_machine != EM_X86_64)
    throw Failure(Step::kOpenTarget, "unsupported-architecture",
                  name_of(pid) + " is not a 64-bit x86 program", 0, pid);
}

bool sleeps_uninterruptibly(pid_t pid, pid_t tid) {
  return status_field(pid, tid, "State").rfind("D", 0) == 0;
}

// Such a thread cannot be stopped; meanwhile all the others would stand still for nothing. A disk
// access is over soon, the wait for a vfork() child may not be.
void require_stoppable(pid_t pid) {
  std::vector<pid_t> asleep = list_threads(pid);
  for (std::uint32_t look = 0; look < kLooks; ++look) {
    if (look > 0) std::this_thread::sleep_for(kBetweenLooks);
    std::erase_if(asleep, [pid](pid_t tid) { return !sleeps_uninterruptibly(pid, tid); });
    if (asleep.empty()) return;
  }
  throw Failure(Step::kOpenTarget, kUnstoppable,
                "thread " + std::to_string(asleep.front()) + " of " + name_of(pid) +
                    " is in uninterruptible sleep and cannot be stopped now",
                EBUSY, asleep.front());
}

// Snapshot and sweep. False if a thread was inside the allocator; `hint` then tells where.
bool attempt(const SnapshotPlan& plan, const Options& options, const Memory& memory, Stream& stream,
             Outcome& outcome, Clock::time_point deadline) {
  Snapshot snapshot = take_snapshot(options.pid, memory, plan, deadline);
  if (!snapshot.quiet) return false;
  sweep(snapshot, options, {options.task}, stream, outcome, deadline);
  if (outcome.result.busy) return false;
  send_outcome(options.pid, snapshot, outcome, stream);
  return true;
}

bool attempt_patiently(const SnapshotPlan& plan, const Options& options, const Memory& memory,
                       Stream& stream, Outcome& outcome, Clock::time_point deadline) {
  send_progress(stream, wire::kFreeze, 0, 0);
  for (Patience patience(options.verbose, deadline);;) {
    try {
      bool done = false;
      run_as_tracer([&] { done = attempt(plan, options, memory, stream, outcome, deadline); });
      return done;
    } catch (const Failure& failure) {
      patience.wait_out(failure);
    }
  }
}

void scan_by(Method method, const std::string& reason, const Options& options, const Memory& memory,
             Stream& stream) {
  Clock::time_point deadline = Clock::now() + options.timeout;
  SnapshotPlan plan{method, {}, nullptr, [&stream] { stream.wake_reader(); }};
  if (method != Method::kCopy) plan.site = find_trampoline_site(options.pid, memory);
  abi::QuiesceHint hint{};
  for (std::uint32_t number = 1; number <= kAttempts; ++number) {
    Outcome outcome{name_of(method), reason, number, {}, {}, {}};
    if (attempt_patiently(plan, options, memory, stream, outcome, deadline)) return;
    if (!outcome.result.busy) continue;  // they did not come out
    hint = outcome.result.hint;
    plan.hint = &hint;
  }
  throw Failure(Step::kDrain, "allocator-busy",
                "the threads of " + name_of(options.pid) + " did not leave the allocator in " +
                    std::to_string(kAttempts) + " attempts",
                EBUSY, options.pid);
}

bool is(const Failure& failure, const char* code) { return std::strcmp(failure.code, code) == 0; }

void scan_stopped(const Options& options, const Memory& memory, Stream& stream) {
  require_stoppable(options.pid);
  std::string reason = kAskedFor;
  if (options.method != "copy") {
    try {
      require_clonable(options.pid);
      if (options.method == "auto") require_orphans_collected(options.pid);
      if (options.method == "track")
        return scan_by(Method::kTrack, kAskedFor, options, memory, stream);
      return scan_by(Method::kClone, "", options, memory, stream);
    } catch (const Failure& failure) {
      if (options.method != "auto" || !is(failure, "clone-refused")) throw;
      reason = failure.what();
    }
  }
  scan_by(Method::kCopy, reason, options, memory, stream);
}

void scan_by_best_method(const Options& options, const Memory& memory, Stream& stream) {
  std::string reason = kAskedFor;
  if (options.method != "live") {
    try {
      return scan_stopped(options, memory, stream);
    } catch (const Failure& failure) {
      if (options.method != "auto" || !is(failure, kUnstoppable)) throw;
      reason = failure.what();
    }
  }
  scan_live(reason, options, memory, stream, Clock::now() + options.timeout);
}

}  // namespace

void scan(const Options& options, Stream& stream) {
  constexpr std::string_view kMethods[] = {"auto", "clone", "copy", "track", "live"};
  if (std::find(std::begin(kMethods), std::end(kMethods), options.method) == std::end(kMethods))
    throw Failure(Step::kOpenTarget, "unsupported-method",
                  "method '" + options.method + "' is not available", 0, options.pid);
  require_supported(options.pid);
  Memory memory(options.pid);
  std::vector<MapEntry> mappings = read_mappings(options.pid);
  try {
    send_target(options.pid, stream);
    scan_by_best_method(options, memory, stream);
  } catch (const Failure& failure) {
    // The memory of a process that executes another program goes away: then whatever failed, failed
    // because of that.
    char byte = 0;
    bool same = !mappings.empty() && memory.try_read(mappings.front().start, &byte, 1);
    if (same || failure.step == Step::kWriteStream) throw;
    bool alive = access(("/proc/" + std::to_string(options.pid) + "/exe").c_str(), F_OK) == 0;
    throw Failure(failure.step, alive ? "target-execed" : "target-exited",
                  name_of(options.pid) + (alive ? " started another program during the scan"
                                                : " ended during the scan"),
                  failure.error, failure.tid);
  }
}

}  // namespace reachscan::helper
