// Seizes and interrupts all threads, then waits for each. Releases all of them on any failure.
#include "helper/stop/freeze.hpp"

#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "arch/system_calls.hpp"
#include "helper/stop/retry_policy.hpp"
#include "helper/stop/scheduling.hpp"
#include "helper/stop/seccomp_filters.hpp"
#include "helper/stop/stops.hpp"
#include "helper/target/process.hpp"

namespace reachscan::helper {
namespace {

using wire::Step;

// Never use EXITKILL here: if the helper dies, the target must continue.
constexpr long kTargetOptions = PTRACE_O_TRACECLONE | PTRACE_O_TRACESYSGOOD;

// How often the thread has given up the processor by itself: to sleep, or at a stop.
std::uint64_t sleeps_of(pid_t pid, pid_t tid) {
  return std::strtoull(status_field(pid, tid, "voluntary_ctxt_switches").c_str(), nullptr, 10);
}

constexpr int kSeizeTries = 10;

// A thread in uninterruptible sleep may never stop, and the others are stopped meanwhile.
constexpr auto kUninterruptibleLimit = std::chrono::milliseconds(200);
constexpr auto kPollInterval = std::chrono::milliseconds(20);

// Enough with AVX-512; for threads with more, growing takes extra time.
constexpr std::size_t kWordsOfThread = 384;

// Returns the tracer of a task, 0 if it has none.
pid_t tracer_of(pid_t pid, pid_t tid) {
  return static_cast<pid_t>(std::atoi(status_field(pid, tid, "TracerPid").c_str()));
}

// The kernel refuses to attach to a thread that is exiting.
bool has_ended(pid_t pid, pid_t tid) {
  std::string state = status_field(pid, tid, "State");
  return state.empty() || state[0] == 'Z' || state[0] == 'X';
}

// The kernel truncates names.
constexpr char kHelperName[] = "reachscan-helpe";

[[noreturn]] void fail_as_traced(pid_t pid, pid_t tid, pid_t tracer, int error) {
  std::string name = try_read_proc_file(tracer, "comm");
  if (!name.empty()) name.pop_back();  // the end of the line
  bool scan = name == kHelperName;
  std::string process = status_field(tracer, tracer, "Tgid");
  std::string who = (process.empty() ? std::to_string(tracer) : process) +
                    (name.empty() || scan ? "" : " (" + name + ")");
  throw Failure(Step::kSeize, scan ? Code::kBeingScanned : Code::kAlreadyTraced,
                "process " + std::to_string(pid) + " is already " +
                    (scan ? "being scanned by another reachscan, process " : "traced by process ") +
                    who,
                error, tid);
}

[[noreturn]] void fail_to_seize(pid_t tid, int error) {
  Code code = error == EPERM ? Code::kNotPermitted : Code::kInternal;
  throw Failure(Step::kSeize, code,
                "cannot attach to thread " + std::to_string(tid) + ": " + std::strerror(error),
                error, tid);
}

// Returns false if the thread has exited.
bool seize(pid_t pid, pid_t tid) {
  pid_t seen = 0;
  for (int tries = 1;; ++tries) {
    if (ptrace(PTRACE_SEIZE, tid, nullptr, kTargetOptions) == 0) return true;
    int error = errno;
    if (error == ESRCH || has_ended(pid, tid)) return false;
    pid_t tracer = tracer_of(pid, tid);
    // A thread created by a seized one is already traced by us; its first stop is yet to be waited
    // for.
    if (tracer == syscall(SYS_gettid)) return true;
    // While a tracer detaches, the kernel may name the parent in its place, so only a tracer seen
    // twice in a row counts.
    if (tracer != 0 && (tracer == seen || tries == kSeizeTries))
      fail_as_traced(pid, tid, tracer, error);
    seen = tracer;
    if (tries == kSeizeTries) fail_to_seize(tid, error);
  }
}

std::chrono::nanoseconds poll_interval(Clock::time_point deadline) {
  return std::min<std::chrono::nanoseconds>(deadline - Clock::now(), kPollInterval);
}

}  // namespace

void RegisterWords::expect(std::size_t threads) {
  values.resize(threads * kWordsOfThread);
  values.clear();
  owners.resize(threads);
  owners.clear();
}

Freeze::Freeze(pid_t pid, PauseLimit& limit, Clock::time_point deadline, Reach reach)
    : pid_(pid),
      reach_(reach),
      limit_(limit),
      deadline_(deadline),
      thread_folder_(open(("/proc/" + std::to_string(pid) + "/task").c_str(),
                          O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  try {
    limit_.guard_seizing();
    seize_new_threads();
    words_.expect(states_.size());
    began_ = Clock::now();
    deadline_ = std::min(limit_.begin(), deadline);
    do {
      stop_seized(deadline_);
    } while (may_have_new_threads() && seize_new_threads());
    if (threads_.empty())
      throw Failure(Step::kWaitStop, Code::kTargetExited,
                    "process " + std::to_string(pid) + " ended while it was being stopped", 0, pid);
  } catch (...) {
    resume_target();
    throw;
  }
}

Freeze::~Freeze() { resume_target(); }

bool Freeze::seize_new_threads() {
  bool found = false;
  for (pid_t tid : list_threads(pid_)) {
    if (states_.contains(tid)) continue;
    if (is_kernel_worker(pid_, tid)) {
      // Stopping it would fail the request that it works on.
      states_[tid] = State::kLeftAlone;
      continue;
    }
    if (!seize(pid_, tid)) continue;
    states_[tid] = State::kSeized;
    if (is_filtered(pid_, tid)) filtered_.insert(tid);
    found = true;
    if (reach_ == Reach::kFirstThread) break;
  }
  return found;
}

// Listing a thousand threads takes longer than reading their number: a folder has a link from each
// of its folders, from itself, and from the one that it is in.
bool Freeze::may_have_new_threads() const {
  if (reach_ == Reach::kFirstThread) return false;
  struct stat folder {};
  return fstat(thread_folder_.get(), &folder) != 0 || folder.st_nlink != threads_.size() + 2;
}

// Interrupts all threads before waiting for any: one by one takes a hundred times as long. Reads
// the registers of stopped threads while the others are still stopping.
void Freeze::stop_seized(Clock::time_point deadline) {
  for (auto& [tid, state] : states_)
    if (state == State::kSeized) state = interrupt(tid) ? State::kInterrupted : State::kGone;
  Ticker::Run ticking(ticker_, poll_interval(deadline));
  for (auto& [tid, state] : states_) {
    if (state != State::kInterrupted) continue;
    StoppedThread thread{tid};
    if (!wait_until_stopped(thread, deadline)) continue;
    threads_.push_back(thread);
    capture(threads_.back());
  }
}

// Returns false if the thread has exited.
bool Freeze::interrupt(pid_t tid) {
  if (arch::kRewindsAtOnce) {
    std::uint64_t sleeps = sleeps_of(pid_, tid);
    if (std::optional<ObservedThread> seen = observe_thread(pid_, tid))
      seen_[tid] = {*seen, sleeps};
  }
  if (ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr) == 0) return true;
  if (errno == ESRCH) return false;
  throw Failure(Step::kInterrupt, Code::kInternal,
                std::string("cannot interrupt a thread: ") + std::strerror(errno), errno, tid);
}

bool Freeze::wait_a_while(pid_t tid, Clock::time_point deadline, WaitStatus& status) const {
  if (ticker_.is_running()) return wait_until_signal(tid, Step::kWaitStop, status);
  return wait_until(tid, Step::kWaitStop, Clock::now() + poll_interval(deadline), status);
}

WaitStatus Freeze::wait_for_stop(pid_t tid, Clock::time_point deadline) const {
  Clock::time_point began = Clock::now();
  WaitStatus status{};
  while (!wait_a_while(tid, deadline, status)) {
    bool sleeps = status_field(pid_, tid, "State").rfind("D", 0) == 0;
    auto now = Clock::now();
    if (now < deadline && !(sleeps && now - began > kUninterruptibleLimit)) continue;
    throw Failure(Step::kWaitStop, sleeps ? Code::kAsleep : Code::kUnstoppable,
                  "thread " + std::to_string(tid) + " did not stop in time" +
                      (sleeps ? "; it is in uninterruptible sleep"
                       : scheduling_policy(tid) == SCHED_IDLE
                           ? "; it runs only when a processor has nothing else to do (SCHED_IDLE)"
                           : ""),
                  ETIMEDOUT, tid);
  }
  return status;
}

bool Freeze::wait_until_stopped(StoppedThread& thread, Clock::time_point deadline) {
  pid_t tid = thread.tid;
  for (;;) {
    WaitStatus status = wait_for_stop(tid, deadline);
    if (!status.stopped()) {
      states_[tid] = State::kGone;
      return false;
    }
    // In clone(), which has not returned yet: continue to the pending interrupt.
    if (status.event() == PTRACE_EVENT_CLONE) {
      release_if_foreign(tid, deadline);
      // Any stop cancels an interrupt requested before it.
      if (!interrupt(tid)) {
        states_[tid] = State::kGone;
        return false;
      }
      ptrace(PTRACE_CONT, tid, nullptr, nullptr);
      continue;
    }
    bool by_us = status.event() == PTRACE_EVENT_STOP;
    thread.pending_signal = by_us ? 0 : status.signal();
    states_[tid] = State::kStopped;
    return true;
  }
}

// Delivers a signal that was pending for the thread.
bool Freeze::run_briefly(StoppedThread& thread, std::chrono::nanoseconds duration,
                         Clock::time_point deadline) {
  auto signal = static_cast<long>(thread.pending_signal);
  thread.pending_signal = 0;
  states_[thread.tid] = State::kInterrupted;
  if (ptrace(PTRACE_CONT, thread.tid, nullptr, signal) != 0) return false;
  // If interrupted at once, it would not execute a single instruction.
  timespec pause{0, static_cast<long>(duration.count())};
  nanosleep(&pause, nullptr);
  if (!interrupt(thread.tid) || !wait_until_stopped(thread, deadline)) return false;
  capture(thread);
  return true;
}

// Returns whether a thread at the entry of a call continues one that was interrupted.
bool Freeze::continues_call(pid_t tid) const {
  std::optional<ObservedThread> seen = observe_thread(pid_, tid);
  return seen && seen->in_call && seen->number == SYS_restart_syscall;
}

bool Freeze::settle_call(StoppedThread& thread) {
  if (!arch::kRewindsAtOnce || !arch::in_system_call(thread.registers)) return true;
  WaitStatus entry = run_to_stop(thread.tid, 0, deadline_);
  bool hidden = arch::kHidesRestart && is_at_call(entry) && continues_call(thread.tid);
  if (is_at_call(entry)) {
    states_[thread.tid] = State::kInterrupted;
    if (!interrupt(thread.tid) || ptrace(PTRACE_CONT, thread.tid, nullptr, nullptr) != 0 ||
        !wait_until_stopped(thread, deadline_))
      throw Failure(Step::kRunTrampoline, Code::kTargetExited, "a thread ended at its call", errno,
                    thread.tid);
  } else if (brings_signal(entry)) {
    thread.pending_signal = entry.signal();
  }
  capture(thread);
  if (hidden && arch::in_system_call(thread.registers)) arch::reveal_restart(thread.registers);
  return is_at_call(entry) && thread.pending_signal == 0;
}

void Freeze::stop_new_threads(Clock::time_point deadline) {
  while (seize_new_threads()) stop_seized(deadline);
}

// clone() with an exit signal other than SIGCHLD may create a separate process, to which the kernel
// attaches us all the same.
void Freeze::release_if_foreign(pid_t parent, Clock::time_point deadline) {
  unsigned long born = 0;
  if (ptrace(PTRACE_GETEVENTMSG, parent, nullptr, &born) != 0) return;  // parent was killed
  auto tid = static_cast<pid_t>(born);
  std::vector<pid_t> own = list_threads(pid_);
  if (std::find(own.begin(), own.end(), tid) != own.end()) return;
  if (wait_for(tid, Step::kWaitStop, deadline).stopped())
    ptrace(PTRACE_DETACH, tid, nullptr, nullptr);
}

void Freeze::capture(StoppedThread& thread) {
  if (!arch::get_registers(thread.tid, thread.registers))
    throw Failure(Step::kReadRegisters, errno == ESRCH ? Code::kTargetExited : Code::kInternal,
                  "cannot read the registers of thread " + std::to_string(thread.tid), errno,
                  thread.tid);
  if (arch::goes_on_by_other_call(thread.registers) && !may_restart(thread))
    return repair_call(thread, arch::first_argument(thread.registers));
  // A pending signal is a cause of EINTR that is not ours.
  if (thread.pending_signal != 0 || !arch::was_cut_short(thread.registers)) return;
  if (auto first_argument = first_argument_of(thread)) repair_call(thread, *first_argument);
}

// Returns whether filters let a call go on where it was interrupted. Otherwise it must start again.
bool Freeze::may_restart(const StoppedThread& thread) const {
  if (filtered_.count(thread.tid) == 0) return true;
  return arch::unfit_state(thread.registers) == nullptr &&
         filters_allow(thread.tid, {{SYS_restart_syscall, {}}});
}

void Freeze::repair_call(StoppedThread& thread, std::uint64_t first_argument) {
  arch::repair_interrupted_call(thread.registers, first_argument);
  if (!arch::set_registers(thread.tid, thread.registers))
    throw Failure(Step::kRepairCalls, errno == ESRCH ? Code::kTargetExited : Code::kInternal,
                  "cannot repair an interrupted call of thread " + std::to_string(thread.tid),
                  errno, thread.tid);
}

// Returns the first argument of the call that the stop made the thread give up; nothing if the
// thread had left the call before.
std::optional<std::uint64_t> Freeze::first_argument_of(const StoppedThread& thread) const {
  if (!arch::kRewindsAtOnce) return 0;
  auto before = seen_.find(thread.tid);
  if (before == seen_.end()) return std::nullopt;
  const auto& [seen, sleeps] = before->second;
  if (!seen.in_call || !arch::pretend_call(thread.tid, true)) return std::nullopt;
  std::optional<ObservedThread> now = observe_thread(pid_, thread.tid);
  arch::pretend_call(thread.tid, false);
  bool same =
      now && now->in_call && now->sp == seen.sp && now->pc == seen.pc &&
      std::equal(now->arguments.begin() + 1, now->arguments.end(), seen.arguments.begin() + 1);
  if (!same) return std::nullopt;
  // Some kernels (Linux 6.12.117) show the result in its place. Then the thread must not have slept
  // in another call since: it has given up the processor once, for this stop.
  bool hidden = static_cast<std::int32_t>(now->arguments[0]) == -EINTR;
  if (hidden ? sleeps_of(pid_, thread.tid) != sleeps + 1 : now->arguments[0] != seen.arguments[0])
    return std::nullopt;
  return seen.arguments[0];
}

RegisterWords Freeze::read_register_words() {
  RegisterWords words = std::move(words_);
  for (const StoppedThread& thread : threads_) {
    const auto general = arch::register_words(thread.registers);
    words.values.insert(words.values.end(), general.begin(), general.end());
    std::size_t before = words.values.size();
    if (!arch::get_vector_words(thread.tid, words.values))
      throw Failure(Step::kReadRegisters, errno == ESRCH ? Code::kTargetExited : Code::kInternal,
                    "cannot read the vector registers of thread " + std::to_string(thread.tid),
                    errno, thread.tid);
    words.belong_to(thread.tid, words.values.size() - before);
  }
  return words;
}

void Freeze::detach(StoppedThread& thread) {
  State& state = states_[thread.tid];
  if (state != State::kStopped) return;
  // ESRCH: killed meanwhile; there is nothing left to release.
  ptrace(PTRACE_DETACH, thread.tid, nullptr, static_cast<long>(thread.pending_signal));
  state = State::kGone;
}

void Freeze::release() {
  for (StoppedThread& thread : threads_) detach(thread);
  ended_ = Clock::now();
  limit_.end();
}

// Threads that were seized or interrupted but never seen stopped cannot be detached while they run;
// the kernel detaches them when this thread exits. Detaches those that do stop.
void Freeze::resume_target() {
  release();
  for (auto& [tid, state] : states_) {
    WaitStatus status{};
    if (state == State::kSeized || state == State::kInterrupted) {
      if (poll_for(tid, Step::kRelease, status) && status.stopped())
        ptrace(PTRACE_DETACH, tid, nullptr,
               status.event() == 0 ? static_cast<long>(status.signal()) : 0L);
      state = State::kGone;
    }
  }
}

}  // namespace reachscan::helper
