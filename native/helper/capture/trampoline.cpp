// Writes the trampoline after the vdso, sends one thread through it, and removes it.
#include "helper/capture/trampoline.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "arch/address_space.hpp"
#include "arch/machine.hpp"
#include "arch/system_calls.hpp"
#include "arch/trampoline.hpp"
#include "helper/capture/caused_signals.hpp"
#include "helper/capture/middleman.hpp"
#include "helper/capture/restartable_sequence.hpp"
#include "helper/capture/stack_word.hpp"
#include "helper/stop/fit_threads.hpp"
#include "helper/stop/retry_policy.hpp"
#include "helper/stop/same_memory.hpp"
#include "helper/stop/seccomp_filters.hpp"
#include "helper/stop/stops.hpp"
#include "helper/target/process.hpp"

namespace reachscan::helper {
namespace {

using arch::kPage;
using wire::Step;

// UFFD_USER_MODE_ONLY of linux/userfaultfd.h: needs no privilege.
constexpr std::uint64_t kUserModeOnly = 1;
// Upwards from the stack pointer; a signal frame is far smaller.
constexpr std::uint64_t kStackSearched = 256 << 10;

std::size_t trampoline_size() {
  return static_cast<std::size_t>(arch::reachscan_trampoline_end - arch::reachscan_trampoline);
}

std::optional<MapEntry> find_vdso(pid_t pid) {
  for (MapEntry& entry : read_mappings(pid))
    if (entry.path == "[vdso]") return entry;
  return std::nullopt;
}

bool inside(std::uint64_t address, const TrampolineSite& site) {
  return address >= site.address && address < site.address + trampoline_size();
}

// Returns suitable threads, best first: one blocked in a call that will restart is certainly not in
// a restartable sequence. Excludes threads with a pending signal, which can only be delivered from
// the stop where it was found.
std::vector<StoppedThread*> candidates(std::vector<StoppedThread>& threads) {
  auto rank = [](const StoppedThread* thread) {
    if (arch::will_restart(thread->registers)) return 0;
    return arch::in_system_call(thread->registers) ? 2 : 1;
  };
  std::vector<StoppedThread*> found;
  for (StoppedThread& thread : threads)
    if (thread.pending_signal == 0) found.push_back(&thread);
  std::stable_sort(found.begin(), found.end(),
                   [&](const auto* a, const auto* b) { return rank(a) < rank(b); });
  return found;
}

std::uint64_t signal_mask(pid_t tid) {
  std::uint64_t mask = 0;
  if (ptrace(PTRACE_GETSIGMASK, tid, sizeof mask, &mask) != 0)
    throw Failure(Step::kPlaceTrampoline, Code::kTargetExited,
                  "cannot read the signal mask of thread " + std::to_string(tid), errno, tid);
  return mask;
}

auto reader_of(const Memory& memory) {
  return [&memory](std::uint64_t at, void* buffer, std::size_t length) {
    return memory.try_read(at, buffer, length);
  };
}

// The kernel would have sent the thread there if we had not moved its program counter.
void leave_restartable_sequence(StoppedThread& thread, const Memory& memory) {
  if (arch::in_system_call(thread.registers)) return;
  arch::set_program_counter(thread.registers,
                            resume_address(thread.tid, thread.registers, reader_of(memory)));
}

void place_trampoline(const StoppedThread& thread, const Memory& memory, const TrampolineSite& site,
                      std::uint64_t middleman_flags) {
  std::vector<unsigned char> code(arch::reachscan_trampoline, arch::reachscan_trampoline_end);
  auto literals = arch::trampoline_literals(site.address, arch::resume_registers(thread.registers),
                                            signal_mask(thread.tid), middleman_flags);
  auto offset = arch::reachscan_trampoline_literals - arch::reachscan_trampoline;
  std::memcpy(code.data() + offset, &literals, sizeof literals);
  // Kernels may forbid this for all read-only memory (proc_mem.force_override).
  if (!memory.try_write(site.address, code.data(), code.size()))
    refuse_clone(
        thread.tid,
        std::string("the vdso of the target cannot be written to: ") + std::strerror(errno), errno);
}

// Only a killed scan leaves its trampoline behind. A signal handler may then have interrupted the
// thread inside it, and will return there.
bool still_needed(const StoppedThread& thread, const Memory& memory, const TrampolineSite& site) {
  std::array<arch::Word, 512> words;
  const std::uint64_t top = arch::stack_pointer(thread.registers);
  for (std::uint64_t at = top; at < top + kStackSearched; at += sizeof words) {
    if (!memory.try_read(at, words.data(), sizeof words)) return false;
    for (arch::Word word : words)
      if (inside(word, site)) return true;
  }
  return false;
}

void require_free_site(Freeze& freeze, const Memory& memory, const TrampolineSite& site) {
  require_same_memory(freeze, memory);
  for (const StoppedThread& thread : freeze.threads())
    if (inside(arch::program_counter(thread.registers), site))
      throw Failure(Step::kPlaceTrampoline, Code::kRetry,
                    "another scan of this process is just ending", EBUSY, thread.tid, site.address);
  std::vector<unsigned char> present(trampoline_size());
  memory.read(Step::kPlaceTrampoline, site.address, present.data(), present.size());
  if (std::all_of(present.begin(), present.end(), [](unsigned char byte) { return byte == 0; }))
    return;
  if (freeze.reach() != Reach::kAllThreads)
    refuse_clone(freeze.pid(), "threads that were not stopped may need what is behind the vdso");
  for (const StoppedThread& thread : freeze.threads())
    if (still_needed(thread, memory, site))
      throw Failure(Step::kPlaceTrampoline, Code::kRetry,
                    "a signal handler will return into code that a killed scan has left behind",
                    EBUSY, thread.tid, site.address);
}

// The only commit point: before it, nothing of the thread has changed; after it, the thread returns
// by itself. Returns false if a signal arrived meanwhile: then everything is as before, and the
// signal is pending.
bool enter_trampoline(StoppedThread& thread, const TrampolineSite& site,
                      Clock::time_point deadline) {
  arch::Registers registers = thread.registers;
  arch::resume_at(registers, site.address);
  if (!arch::set_registers(thread.tid, registers)) {
    int error = errno;
    if (error == ESRCH)
      throw Failure(Step::kRunTrampoline, Code::kTargetExited, "a thread was killed", error,
                    thread.tid);
    arch::set_registers(thread.tid, thread.registers);  // some may have been set
    refuse_clone(thread.tid, "the registers of the target cannot be set", error);
  }
  WaitStatus status = run_to_stop(thread.tid, 0, deadline);
  if (!brings_signal(status)) return true;
  const char* cause = cause_in_trampoline(thread.tid, status, site.address, trampoline_size());
  arch::set_registers(thread.tid, thread.registers);
  if (cause != nullptr) refuse_clone(thread.tid, cause);
  thread.pending_signal = status.signal();
  return false;
}

std::string refused_by_kernel(std::int64_t result) {
  return std::string("the kernel refused to clone the target: ") +
         std::strerror(static_cast<int>(-result));
}

// The trampoline does not clone if the clone would become a child of the target.
void require_no_refusal(pid_t tid, const arch::Registers& registers, const TrampolineSite& site) {
  std::int64_t result = arch::call_result(registers);
  if (arch::call_number(registers) == SYS_prctl && result < 0 && result != -ENOSYS)
    refuse_clone(tid, "a thread of the target has used up its stack");
  if (arch::call_number(registers) == SYS_clone && result < 0 && result != -ENOSYS)
    refuse_clone(tid, refused_by_kernel(result), static_cast<int>(-result));
  if (arch::call_number(registers) == SYS_rt_sigprocmask &&
      arch::second_argument(registers) == site.address + arch::own_signals_offset())
    refuse_clone(tid, "orphans of the target come back to it as children (it is a subreaper)");
}

// Runs the thread until it has created the middleman.
pid_t run_to_middleman(const StoppedThread& thread, const Memory& memory,
                       const TrampolineSite& site, Clock::time_point deadline) {
  const SavedStackWord saved(memory,
                             arch::stack_pointer(thread.registers) - arch::kStackWordDistance);
  for (;;) {
    WaitStatus status = run_to_call(thread.tid, deadline);
    if (is_after_clone(status)) return child_of_clone(thread.tid);
    arch::Registers registers;
    if (arch::get_registers(thread.tid, registers)) require_no_refusal(thread.tid, registers, site);
  }
}

bool is_refusal(const Failure& failure) { return failure.code == Code::kCloneRefused; }

// Whatever disqualifies this many threads usually disqualifies all.
constexpr std::size_t kMaxObstacles = 8;

// What the thread and the middleman do by themselves, even if we are killed. Filters do not apply
// to what we make the middleman do.
std::vector<PlannedCall> calls_of_trampoline(std::uint64_t middleman_flags) {
  constexpr auto kUnknown = std::nullopt;
  return {{SYS_rt_sigprocmask, {SIG_SETMASK, kUnknown, 0, sizeof(std::uint64_t)}},
          {SYS_prctl, {PR_GET_CHILD_SUBREAPER, kUnknown}},
          {SYS_clone, {middleman_flags, 0}},
          {SYS_exit_group},
          {SYS_kill, {kUnknown, SIGKILL}},
          {SYS_wait4, {kUnknown, 0, std::uint64_t{__WALL}, 0}}};
}

// Returns null if the thread is suitable.
const char* obstacle(pid_t pid, const StoppedThread& thread, const Memory& memory,
                     const TrampolineSite& site, std::uint64_t middleman_flags) {
  if (const char* why = obstacle(pid, thread)) return why;
  if (!arch::made_native_call(thread.registers, reader_of(memory)))
    return "is in a system call that it made like a 32-bit program";
  if (is_filtered(pid, thread.tid) &&
      !filters_allow(thread.tid, calls_of_trampoline(middleman_flags)))
    return "runs under a seccomp filter, which may forbid clone()";
  if (arch::leads_back(site.address, thread.registers)) return nullptr;
  return "is too far from the vdso for a branch, as in a program without libraries";
}

// Makes a thread start a middleman, and calls use(middleman). Returns the thread, which is still
// stopped inside the trampoline.
template <typename Use>
pid_t with_middleman(Freeze& freeze, const Memory& memory, const TrampolineSite& site,
                     std::uint64_t middleman_flags, Clock::time_point deadline, Use use) {
  require_free_site(freeze, memory, site);
  std::vector<StoppedThread*> found = candidates(freeze.threads());
  std::size_t obstacles = 0;
  for (StoppedThread* thread : found) {
    if (const char* why = obstacle(freeze.pid(), *thread, memory, site, middleman_flags)) {
      if (++obstacles == std::min(found.size(), kMaxObstacles))
        refuse_clone(thread->tid, std::string("a thread of the target ") + why);
      continue;
    }
    if (!freeze.settle_call(*thread)) continue;
    leave_restartable_sequence(*thread, memory);
    place_trampoline(*thread, memory, site, middleman_flags);
    if (!enter_trampoline(*thread, site, deadline)) continue;
    try {
      Middleman middleman(run_to_middleman(*thread, memory, site, deadline), deadline);
      use(middleman);
      return thread->tid;
    } catch (const Failure& failure) {
      // The thread would return by itself, too, but would leave the trampoline behind.
      if (is_refusal(failure)) leave_trampoline(freeze, memory, site, thread->tid, deadline);
      throw;
    }
  }
  throw Failure(Step::kPlaceTrampoline, Code::kRetry, "every thread is about to receive a signal",
                EBUSY, freeze.pid());
}

// Returns a process that is killed with us from the start, like the middleman, which is no longer
// needed.
pid_t make_process(
    Middleman& middleman, std::uint64_t flags, Clock::time_point deadline,
    const std::function<void()>& meanwhile = [] {}) {
  std::int64_t made = middleman.call(SYS_clone, {flags}, deadline, meanwhile);
  if (made < 0) refuse_clone(middleman.tid(), refused_by_kernel(made), static_cast<int>(-made));
  middleman.dismiss();
  return static_cast<pid_t>(made);
}

// The middleman ends at its next instruction, so the descriptor, which is in no table but its own,
// cannot outlive us.
int make_fault_descriptor(Middleman& middleman, Clock::time_point deadline) {
  std::int64_t made =
      middleman.call(SYS_userfaultfd, {O_CLOEXEC | O_NONBLOCK | kUserModeOnly}, deadline);
  int error = made < 0 ? static_cast<int>(-made) : 0;
  int process = static_cast<int>(syscall(SYS_pidfd_open, middleman.tid(), 0));
  int ours = error == 0 ? static_cast<int>(syscall(SYS_pidfd_getfd, process, made, 0)) : -1;
  if (error == 0 && ours < 0) error = errno;
  close(process);
  if (ours < 0)
    throw Failure(Step::kTrackWrites, Code::kUnsupportedMethod,
                  std::string("the kernel gives no means to track what the target writes: ") +
                      std::strerror(error),
                  error, middleman.tid());
  return ours;
}

// Resumes the thread until its next stop at a call. Returns true when it has reaped the middleman,
// or has none.
bool has_reaped_middleman(pid_t tid, arch::Registers& now, Clock::time_point deadline) {
  run_to_call(tid, deadline);
  if (!arch::get_registers(tid, now))
    throw Failure(Step::kRunTrampoline, Code::kTargetExited, "a thread was killed", errno, tid);
  std::uint64_t number = arch::call_number(now);
  std::int64_t result = arch::call_result(now);
  bool at_exit = result != -ENOSYS;
  return at_exit && (number == SYS_wait4 || (number == SYS_rt_sigprocmask && result == 0));
}

}  // namespace

TrampolineSite find_trampoline_site(pid_t pid, const Memory& memory) {
  std::optional<MapEntry> vdso = find_vdso(pid);
  arch::Header header{};
  if (!vdso || (vdso->perms & wire::kExecute) == 0 ||
      !memory.try_read(vdso->start, &header, sizeof header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    throw Failure(Step::kPlaceTrampoline, Code::kCloneRefused,
                  "the target has no vdso that it can execute", 0, pid);
  std::uint64_t image_end =
      vdso->start + header.e_shoff + std::uint64_t{header.e_shnum} * header.e_shentsize;
  std::uint64_t address = (image_end + 15) & ~15ull;
  std::uint64_t page_end = (image_end + kPage - 1) & ~(kPage - 1);
  if (image_end < vdso->start || page_end > vdso->end || address + trampoline_size() > page_end)
    throw Failure(Step::kPlaceTrampoline, Code::kCloneRefused,
                  "the target's vdso has no room behind its image", 0, pid, vdso->start);
  return {vdso->start, address};
}

CloneResult start_worker(Freeze& freeze, const Memory& memory, const TrampolineSite& site,
                         Clock::time_point deadline) {
  CloneResult result{};
  result.injected = with_middleman(
      freeze, memory, site, CLONE_VM | CLONE_FILES, deadline, [&](Middleman& middleman) {
        result.clone = make_process(middleman, CLONE_VM | CLONE_FILES, deadline);
      });
  return result;
}

CloneResult clone_target(Freeze& freeze, const Memory& memory, const TrampolineSite& site,
                         Descriptors descriptors, Clock::time_point deadline,
                         const std::function<void()>& meanwhile) {
  std::uint64_t clone_flags = descriptors == Descriptors::kShared ? CLONE_FILES : 0;
  auto make_clone = [&](Middleman& middleman) {
    pid_t made = make_process(middleman, clone_flags, deadline, meanwhile);
    wait_for_first_stop(made, deadline);
    return made;
  };
  CloneResult result{};
  // When a process with a descriptor table of its own ends, its descriptors are closed, and network
  // and user-space file systems are notified of each.
  result.injected = with_middleman(freeze, memory, site, CLONE_VM | CLONE_FILES, deadline,
                                   [&](Middleman& m) { result.clone = make_clone(m); });
  return result;
}

FaultDescriptor borrow_fault_descriptor(Freeze& freeze, const Memory& memory,
                                        const TrampolineSite& site, Clock::time_point deadline) {
  FaultDescriptor result{};
  result.injected =
      with_middleman(freeze, memory, site, CLONE_VM, deadline, [&](Middleman& middleman) {
        result.descriptor = make_fault_descriptor(middleman, deadline);
      });
  return result;
}

pid_t use_middleman(Freeze& freeze, const Memory& memory, const TrampolineSite& site,
                    Clock::time_point deadline, const std::function<void(Middleman&)>& use) {
  return with_middleman(freeze, memory, site, CLONE_VM | CLONE_FILES, deadline, use);
}

// At the exit of a call no signal has been delivered yet, and none will be before the thread has
// its own registers back. For a stopped process (SIGSTOP, ^Z) there is no other way: its thread
// would stop again inside the trampoline, and stay there.
void leave_trampoline(Freeze& freeze, const Memory& memory, const TrampolineSite& site,
                      pid_t injected, Clock::time_point deadline) {
  std::vector<StoppedThread>& threads = freeze.threads();
  auto thread =
      std::find_if(threads.begin(), threads.end(),
                   [injected](const StoppedThread& other) { return other.tid == injected; });
  for (arch::Registers now; !has_reaped_middleman(injected, now, deadline);) {
    if (arch::call_number(now) != SYS_clone || arch::call_result(now) <= 0) continue;
    arch::resume_to_reap(now, site.address);
    arch::set_registers(injected, now);
  }
  std::uint64_t own_signals = 0;
  memory.read(Step::kRelease, site.address + arch::own_signals_offset(), &own_signals,
              sizeof own_signals);
  ptrace(PTRACE_SETSIGMASK, injected, sizeof own_signals, &own_signals);
  arch::set_registers(injected, thread->registers);
  std::vector<unsigned char> nothing(trampoline_size());
  memory.write(Step::kRelease, site.address, nothing.data(), nothing.size());
}

}  // namespace reachscan::helper
