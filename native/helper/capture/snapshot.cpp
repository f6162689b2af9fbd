// The steps of a pause in their order, and how long each takes.
#include "helper/capture/snapshot.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <cstring>
#include <functional>
#include <optional>

#include "arch/system_calls.hpp"
#include "helper/capture/copy.hpp"
#include "helper/stop/quiesce.hpp"
#include "helper/stop/realtime_priority.hpp"
#include "helper/stop/retry_policy.hpp"
#include "helper/stop/same_memory.hpp"
#include "helper/target/memory_limits.hpp"
#include "helper/target/open_files.hpp"
#include "helper/target/processor_quota.hpp"
#include "wire/protocol.hpp"

namespace reachscan::helper {
namespace {

// Names the time span between two calls.
class Stopwatch {
 public:
  Stopwatch(std::vector<PhaseTime>& phases, Clock::time_point start)
      : phases_(phases), last_(start) {}

  void lap(const char* name) {
    Clock::time_point now = Clock::now();
    phases_.push_back({name, now - last_});
    last_ = now;
  }

 private:
  std::vector<PhaseTime>& phases_;
  Clock::time_point last_;
};

// Reports a step that timed out because the pause ran out of time as such.
template <typename Steps>
void within_limit(const PauseLimit& limit, Steps steps) {
  try {
    steps();
  } catch (const Failure& failure) {
    bool waited = failure.code == Code::kTimeout;
    if (waited && limit.is_over()) throw limit.failure(failure.step);
    throw;
  }
}

// Creates the process that the sweeper runs in, in one of several ways. Its functions are called in
// this order.
class CaptureMethod {
 public:
  virtual ~CaptureMethod() = default;
  // Called before the pause in which capture() is called.
  virtual void prepare(Snapshot&, Clock::time_point) {}
  // Called while the target is stopped. Calls read_words() once, at the best moment.
  virtual void capture(Freeze& freeze, Clock::time_point deadline,
                       const std::function<void()>& read_words) = 0;
  // Called while it is still stopped: when hundreds of threads wake up at once, a thread that must
  // still be led through some calls would wait for its turn behind them.
  virtual void resume_target(Freeze&, Clock::time_point) {}
  // Called when the target runs again.
  virtual void finish(Snapshot& snapshot) = 0;
};

class CloneCapture : public CaptureMethod {
 public:
  CloneCapture(pid_t pid, const Memory& memory, const SnapshotPlan& plan)
      : pid_(pid),
        memory_(memory),
        site_(plan.site),
        searches_dontfork_(*plan.searches_dontfork),
        files_(pid),
        dontfork_(pid, files_),
        descriptors_(read_open_files(pid).served ? Descriptors::kShared : Descriptors::kCopied) {}

  void capture(Freeze& freeze, Clock::time_point deadline,
               const std::function<void()>& read_words) override {
    made_ = clone_target(freeze, memory_, site_, descriptors_, deadline, read_words);
    // Must precede the target's first write to shared pages: the clone has inherited its OOM score.
    prefer_as_oom_victim(made_.clone);
    if (searches_dontfork_) dontfork_.find_lost(made_.clone);
    dontfork_.capture(memory_);
  }

  void resume_target(Freeze& freeze, Clock::time_point deadline) override {
    leave_trampoline(freeze, memory_, site_, made_.injected, deadline);
  }

  void finish(Snapshot& snapshot) override {
    snapshot.clone = std::make_unique<Clone>(made_.clone, site_.address);
    snapshot.on_quota = !leave_quota(made_.clone);
    release_files(*snapshot.clone, descriptors_, pid_);
    dontfork_.restore(*snapshot.clone);
    snapshot.dontfork_left_out = dontfork_.left_out();
    snapshot.mappings = files_.mappings_of(made_.clone);
    require_complete_capture(snapshot.mappings);
    PageMap own(made_.clone), target(pid_);
    for (const MapEntry& entry : snapshot.mappings)
      add_resident_pages(snapshot, own, target, entry);
    snapshot.resident_pages.untouchable = subtract(
        snapshot.resident_pages.untouchable, shared_memory_data(made_.clone, snapshot.mappings));
  }

 private:
  void require_complete_capture(const std::vector<MapEntry>& mappings) const {
    if (searches_dontfork_ || !dontfork_.may_miss_any(made_.clone, mappings)) return;
    searches_dontfork_ = true;
    throw Failure(wire::Step::kPrepareClone, Code::kRetry,
                  "the target keeps memory from its clones, which is to be read as well", 0, pid_);
  }

  // Makes memory readable in the clone that the program has made inaccessible.
  void add_resident_pages(Snapshot& snapshot, const PageMap& own, const PageMap& target,
                          const MapEntry& entry) const {
    std::vector<AddressRange>& closed = snapshot.resident_pages.protected_;
    std::size_t known = closed.size();
    snapshot.resident_pages.add(own, target, entry);
    if ((entry.perms & wire::kRead) != 0 || closed.size() == known) return;
    std::uint64_t length = entry.end - entry.start;
    if (snapshot.clone->call(SYS_mprotect, {entry.start, length, PROT_READ, 0, 0, 0}) >= 0) return;
    closed.resize(known);
    snapshot.dontfork_left_out += length;
  }

  pid_t pid_;
  const Memory& memory_;
  const TrampolineSite& site_;
  bool& searches_dontfork_;
  MappedFiles files_;
  DontforkMemory dontfork_;
  Descriptors descriptors_;
  CloneResult made_{};
};

class CopyCapture : public CaptureMethod {
 public:
  CopyCapture(pid_t pid, const Memory& memory) : memory_(memory), copy_(pid, memory) {}

  void capture(Freeze& freeze, Clock::time_point deadline,
               const std::function<void()>& read_words) override {
    require_same_memory(freeze, memory_);
    read_words();
    copy_.capture(deadline);
  }

  void finish(Snapshot& snapshot) override {
    copy_.complete();
    snapshot.clone = copy_.build();
    snapshot.mappings = copy_.mappings();
    snapshot.resident_pages = copy_.resident_pages();
    snapshot.dontfork_left_out = copy_.left_out();
  }

 protected:
  MemoryCopy& copy() { return copy_; }

  const Memory& memory_;

 private:
  MemoryCopy copy_;
};

// A copy made while the target runs; only what it writes meanwhile is read while it is stopped.
class TrackCapture : public CopyCapture {
 public:
  TrackCapture(pid_t pid, const Memory& memory, const SnapshotPlan& plan)
      : CopyCapture(pid, memory), pid_(pid), plan_(plan) {
    // The middleman needs a descriptor table of its own, with copies that its end closes.
    if (read_open_files(pid).served)
      throw Failure(wire::Step::kTrackWrites, Code::kUnsupportedMethod,
                    "the target has files open on a network or user-space file system, whose "
                    "server would notice",
                    0, pid);
  }

  void prepare(Snapshot& snapshot, Clock::time_point deadline) override {
    Stopwatch watch(snapshot.phases, Clock::now());
    snapshot.pause = begin_tracking(deadline);
    watch.lap("track");
    copy().read_ahead(*tracker_);
    watch.lap("read ahead");
  }

  void finish(Snapshot& snapshot) override {
    tracker_.reset();
    CopyCapture::finish(snapshot);
  }

 private:
  std::chrono::nanoseconds begin_tracking(Clock::time_point deadline) {
    RealtimePriority urgency;
    Freeze freeze(pid_, *plan_.limit, deadline);
    FaultDescriptor made{};
    within_limit(*plan_.limit, [&] {
      made = borrow_fault_descriptor(freeze, memory_, plan_.site, freeze.deadline());
      leave_trampoline(freeze, memory_, plan_.site, made.injected, freeze.deadline());
    });
    freeze.release();
    tracker_.emplace(pid_, made.descriptor);
    return freeze.pause();
  }

  pid_t pid_;
  const SnapshotPlan& plan_;
  std::optional<WriteTracker> tracker_;
};

std::unique_ptr<CaptureMethod> make_capture_method(pid_t pid, const Memory& memory,
                                                   const SnapshotPlan& plan) {
  if (plan.method == Method::kCopy) return std::make_unique<CopyCapture>(pid, memory);
  if (plan.method == Method::kTrack) return std::make_unique<TrackCapture>(pid, memory, plan);
  return std::make_unique<CloneCapture>(pid, memory, plan);
}

void add_words(const std::vector<std::uint64_t>& more, std::vector<std::uint64_t>& words) {
  words.insert(words.end(), more.begin(), more.end());
}

void read_words(Freeze& freeze, Snapshot& snapshot) {
  snapshot.words = freeze.read_register_words();
  std::vector<pid_t> tids;
  for (const StoppedThread& thread : freeze.threads()) tids.push_back(thread.tid);
  if (!add_pending_signal_words(tids, snapshot.words.values))
    snapshot.unread_in_kernel.push_back("more signals are pending than can be read in time");
}

void require_untagged_memory(Freeze& freeze) {
  for (const StoppedThread& thread : freeze.threads())
    if (const char* why = arch::unreadable_memory(thread.tid))
      throw Failure(wire::Step::kReadMemory, Code::kUnsupportedArchitecture,
                    "process " + std::to_string(freeze.pid()) + " " + why +
                        ", which reachscan does not understand",
                    0, thread.tid);
}

void quiesce_and_capture(Freeze& freeze, const Memory& memory, const SnapshotPlan& plan,
                         CaptureMethod& maker, const std::function<void()>& read_kernel,
                         Snapshot& snapshot, Stopwatch& watch) {
  require_untagged_memory(freeze);
  if (plan.hint != nullptr) {
    DrainResult drained = drain(freeze, memory, *plan.hint, plan.short_words);
    snapshot.quiet = drained.quiet;
    snapshot.drain_runs = drained.runs;
  }
  watch.lap("quiesce");
  if (!snapshot.quiet) return;
  maker.capture(freeze, freeze.deadline(), [&] {
    read_words(freeze, snapshot);
    read_kernel();
  });
  maker.resume_target(freeze, freeze.deadline());
  watch.lap(plan.method == Method::kClone ? "clone" : "copy");
}

abi::Sleep sleep_of(const arch::Registers& registers) {
  if (!arch::will_restart(registers)) return abi::Sleep::kNoOrUnknown;
  return arch::waits_for_lock(registers) ? abi::Sleep::kForLock : abi::Sleep::kOtherwise;
}

void freeze_and_capture(pid_t pid, const Memory& memory, const SnapshotPlan& plan,
                        CaptureMethod& maker, const std::function<void()>& read_kernel,
                        Snapshot& snapshot, Clock::time_point deadline) {
  RealtimePriority urgency;
  Freeze freeze(pid, *plan.limit, deadline);
  Stopwatch watch(snapshot.phases, freeze.began());
  watch.lap("freeze");
  within_limit(*plan.limit, [&] {
    quiesce_and_capture(freeze, memory, plan, maker, read_kernel, snapshot, watch);
  });
  freeze.release();
  watch.lap("release");
  plan.released();
  snapshot.pause += freeze.pause();
  for (const StoppedThread& thread : freeze.threads())
    snapshot.threads.push_back(facts_of(thread.tid, thread.registers));
}

}  // namespace

ThreadFacts facts_of(pid_t tid, const arch::Registers& registers) {
  return {tid,
          {arch::program_counter(registers), arch::stack_pointer(registers),
           arch::thread_pointer(registers), sleep_of(registers), arch::link_register(registers)},
          {}};
}

void Snapshot::add_kernel_roots(const KernelRoots& before, const KernelRoots& after) {
  for (const KernelRoots* held : {&before, &after}) add_words(held->words, words.values);
  words.belong_to(0);
  for (std::string& clause : unread(before, after)) unread_in_kernel.push_back(std::move(clause));
}

Snapshot take_snapshot(pid_t pid, const Memory& memory, const SnapshotPlan& plan,
                       Clock::time_point deadline) {
  Snapshot snapshot;
  std::unique_ptr<CaptureMethod> maker = make_capture_method(pid, memory, plan);
  maker->prepare(snapshot, deadline);
  KernelRoots before = read_kernel_roots(pid, memory);
  PipeReader pipes(before.pipes);
  auto read_kernel = [&] {
    pipes.capture();
    before.queues.look(before.messages);
  };
  freeze_and_capture(pid, memory, plan, *maker, read_kernel, snapshot, deadline);
  if (!snapshot.quiet) return snapshot;
  add_words(pipes.words(plan.short_words ? 4 : 8), snapshot.words.values);
  KernelRoots after = read_kernel_roots(pid, memory);
  snapshot.add_kernel_roots(before, after);
  if (!pipes.has_read_all(after.pipes))
    snapshot.unread_in_kernel.push_back("pipes of the program hold what could not be read");
  maker->finish(snapshot);
  return snapshot;
}

}  // namespace reachscan::helper
