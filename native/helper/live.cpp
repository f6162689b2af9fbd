// Scans changing memory in several passes, each of which narrows down what may be leaked.
#include "helper/live.hpp"

#include <cerrno>
#include <optional>
#include <thread>

#include "arch/thread_descriptor.hpp"
#include "helper/capture/copy.hpp"
#include "helper/capture/seen_threads.hpp"
#include "helper/capture/settle.hpp"
#include "helper/stop/retry_policy.hpp"
#include "helper/sweep/sweep.hpp"

namespace reachscan::helper {
namespace {

using wire::Step;

constexpr unsigned kProbes = 4;
// Time for pointers to move.
constexpr auto kPollInterval = std::chrono::milliseconds(200);
// How long, and at least how often, each pass tries to read a heap that keeps changing.
constexpr auto kBusyLimit = std::chrono::seconds(3);
constexpr unsigned kMinTries = 4;
constexpr auto kRetryInterval = std::chrono::milliseconds(2);

// Returns whether a thread slept in the same place in two observations.
bool is_still(const ObservedThread& before, const ObservedThread* after) {
  return after != nullptr && before.asleep && after->asleep && before.sp == after->sp &&
         before.pc == after->pc;
}

bool has_not_run(const ObservedThread& before, const ObservedThread& after) {
  return before.turns == after.turns;
}

const ObservedThread* find_thread(const std::vector<ObservedThread>& threads, pid_t tid) {
  for (const ObservedThread& thread : threads)
    if (thread.tid == tid) return &thread;
  return nullptr;
}

class LiveScan {
 public:
  LiveScan(const std::string& reason, const Options& options, const Memory& memory, Stream& stream,
           Clock::time_point deadline)
      : reason_(reason), options_(options), memory_(memory), stream_(stream), deadline_(deadline) {}

  void run() {
    // Only a search for leaks takes more than one pass.
    unsigned looks = options_.task == abi::Task::kFindLeaks ? kProbes - 1 : 0;
    for (unsigned look = 0; look < looks && (look == 0 || !suspects_.empty()); ++look) {
      Clock::time_point began = Clock::now();
      suspects_ = scan_with_retries(abi::Task::kListSuspects).suspects;
      looked_ = true;
      earlier_passes_ += Clock::now() - began;
      std::this_thread::sleep_for(kPollInterval);
    }
    scan_with_retries(options_.task);
  }

 private:
  SweepResult scan_with_retries(abi::Task task) {
    Clock::time_point end = Clock::now() + kBusyLimit;
    stabilizer_.reset();
    copy_.emplace(options_.pid, memory_);
    for (unsigned tries = 1;; ++tries) {
      std::string trouble = "a thread is inside the allocator";
      try {
        SweepResult result = look(task);
        if (!result.busy) return result;
      } catch (const Failure& failure) {
        if (failure.code == Code::kCloneRefused)
          throw Failure(failure.step, Code::kNoMemory, failure.what(), failure.error, failure.tid);
        trouble = failure.what();
        if (!may_pass(failure, end)) throw;
      }
      last_trouble_ = trouble;
      Clock::time_point now = Clock::now();
      if (now >= deadline_ || (now >= end && tries >= kMinTries)) fail_busy();
      if (!stabilizer_) stabilizer_.emplace(options_.pid);
      std::this_thread::sleep_for(kRetryInterval);
    }
  }

  bool may_pass(const Failure& failure, Clock::time_point end) const {
    if (failure.code == Code::kStartingUp) return Clock::now() < end;
    // The same failure twice while nothing moved: waiting for a better moment will not help.
    if (failure.code == Code::kLayoutUnknown) return !still_ || last_trouble_ != failure.what();
    return failure.code == Code::kRetry;
  }

  [[noreturn]] void fail_busy() const {
    throw Failure(
        Step::kDrain, options_.method == "live" ? Code::kHeapInMotion : Code::kAllocatorBusy,
        "the heap of process " + std::to_string(options_.pid) +
            " changes too fast to be read while it runs: in " + std::to_string(attempts_) +
            " readings it was not consistent, in the last one because " + last_trouble_,
        EBUSY, options_.pid);
  }

  SweepResult look(abi::Task task) {
    Clock::time_point began = Clock::now();
    Snapshot snapshot;
    bool last = task != abi::Task::kListSuspects;
    if (last && looked_) snapshot.phases.push_back({"earlier looks", earlier_passes_});
    send_progress(stream_, wire::kClone, 0, 0);
    read_target(*copy_, snapshot);
    require_same_program();
    copy_->complete();
    snapshot.clone = copy_->build();
    snapshot.mappings = copy_->mappings();
    snapshot.resident_pages = copy_->resident_pages();
    snapshot.dontfork_left_out = copy_->left_out();
    snapshot.phases.push_back({"copy", Clock::now() - began});
    Outcome outcome{"live", reason_, ++attempts_, {}, {}, {}, {}};
    SweepTask wanted{task, handles_signals(options_.pid)};
    wanted.torn = true;
    if (looked_) wanted.suspects = &suspects_;
    sweep(snapshot, options_, wanted, stream_, outcome, deadline_);
    if (last && !outcome.result.busy) {
      warn();
      name_threads(options_.pid, snapshot.threads);
      send_outcome(snapshot, outcome, stream_);
    }
    return std::move(outcome.result);
  }

  // After an exec(), the old memory can no longer be read through the descriptor opened before.
  void require_same_program() const {
    char byte = 0;
    const std::vector<MapEntry>& mappings = copy_->mappings();
    if (mappings.empty() || !memory_.try_read(mappings.front().start, &byte, 1))
      throw Failure(
          Step::kReadMemory, Code::kTargetExeced,
          "process " + std::to_string(options_.pid) + " lost its memory while it was read", 0,
          options_.pid);
  }

  void read_target(MemoryCopy& copy, Snapshot& snapshot) {
    pid_t pid = options_.pid;
    std::vector<std::uint64_t>& words = snapshot.words.values;
    KernelRoots held = read_kernel_roots(pid, memory_);
    std::vector<ObservedThread> before = observe_threads(pid);
    if (stabilizer_) {
      stabilizer_->settle(copy);
    } else {
      copy.capture();
    }
    std::vector<ObservedThread> after = observe_threads(pid);
    for (const auto* threads : {&before, &after})
      for (const ObservedThread& thread : *threads)
        words.insert(words.end(), thread.arguments.begin(), thread.arguments.end());
    snapshot.add_kernel_roots(held, read_kernel_roots(pid, memory_));
    combine_threads(before, after, copy, snapshot);
  }

  void combine_threads(const std::vector<ObservedThread>& before,
                       const std::vector<ObservedThread>& after, const MemoryCopy& copy,
                       Snapshot& snapshot) {
    std::map<pid_t, std::uint64_t> descriptors = find_descriptors(options_.pid, before, copy);
    threads_ = before.size();
    running_ = whole_ = 0;
    still_ = before.size() == after.size();
    for (const ObservedThread& thread : before) {
      const ObservedThread* later = find_thread(after, thread.tid);
      auto descriptor = descriptors.find(thread.tid);
      if (descriptor == descriptors.end() && later != nullptr)
        throw Failure(Step::kReadMemory, Code::kLayoutUnknown,
                      "thread " + std::to_string(thread.tid) +
                          " has no descriptor of the C library that can be found",
                      0, thread.tid);
      std::uint64_t pointer = descriptor == descriptors.end() ? 0 : descriptor->second;
      bool still = is_still(thread, later);
      still_ = still_ && still && has_not_run(thread, *later);
      if (!still || !thread.in_call) ++running_;
      // Without a stack pointer, the whole stack counts as live.
      abi::Thread state{0, 0, pointer};
      if (still) state = {thread.pc, thread.sp, pointer};
      if (!still) ++whole_;
      snapshot.threads.push_back({thread.tid, state, {}});
    }
  }

  void warn() {
    std::string some = running_ == 0 ? "" : " (" + std::to_string(running_) + " of them at work)";
    std::string hidden =
        whole_ == 0
            ? ""
            : "; what earlier calls have left on the " +
                  (whole_ == 1 ? "stack of 1 thread"
                               : "stacks of " + std::to_string(whole_) + " threads") +
                  " counts as in use, since the stack pointer is unknown, and may hide leaks";
    stream_.warning(
        "live-registers-unknown",
        "the registers of " + std::to_string(threads_) + (threads_ == 1 ? " thread" : " threads") +
            some +
            " could not be read, nor what waits with signals and in pipes: a block that "
            "only these point to is reported as leaked, with all that hangs below it; a "
            "thread that waits in a system call can hold six such blocks" +
            hidden);
  }

  const std::string& reason_;
  const Options& options_;
  const Memory& memory_;
  Stream& stream_;
  Clock::time_point deadline_;
  std::vector<abi::Suspect> suspects_;
  bool looked_ = false;
  std::uint32_t attempts_ = 0;
  std::string last_trouble_;
  bool still_ = false;  // no thread ran during the last pass
  std::optional<MemoryCopy> copy_;
  std::optional<HeapStabilizer> stabilizer_;  // used if one reading was not enough
  std::chrono::nanoseconds earlier_passes_{};
  std::size_t threads_ = 0;
  std::size_t running_ = 0;
  std::size_t whole_ = 0;  // threads whose whole stack counts as live
};

}  // namespace

void scan_live(const std::string& reason, const Options& options, const Memory& memory,
               Stream& stream, Clock::time_point deadline) {
  if (!arch::kDescriptorKnowsItself)
    throw Failure(
        Step::kOpenTarget, Code::kUnsupportedMethod,
        (options.method == "live" ? std::string() : reason + "; ") +
            "the thread-local variables of a program for this processor can be found only "
            "while it is stopped",
        0, options.pid);
  stream.wake_reader();
  if (options.python)
    throw Failure(
        Step::kReadMemory, Code::kUnsupportedMethod,
        "Python objects can only be judged in memory of one moment, and method live reads "
        "that of a process that runs on" +
            (reason.empty() ? "" : " (" + reason + ")"),
        0, options.pid);
  if (!options.lost_before.empty())
    throw Failure(Step::kReadMemory, Code::kUnsupportedMethod,
                  "a scan of several moments needs memory of each of them, and method live reads "
                  "that of a process that runs on" +
                      (reason.empty() ? "" : " (" + reason + ")"),
                  0, options.pid);
  LiveScan(reason, options, memory, stream, deadline).run();
}

}  // namespace reachscan::helper
