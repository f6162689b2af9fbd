#include "helper/trampoline.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "helper/patience.hpp"
#include "helper/process.hpp"
#include "helper/urgency.hpp"

namespace reachscan::helper {
namespace {

using wire::Step;

constexpr std::uint64_t kPage = 4096;
// UFFD_USER_MODE_ONLY of linux/userfaultfd.h: asks for no privilege.
constexpr std::uint64_t kUserModeOnly = 1;
// From the stack pointer up; a signal frame is far smaller.
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

// Threads that can serve, best first: one blocked in a call that will restart is surely in no
// restartable sequence. A signal on its way can only be delivered from the stop it was found in.
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

// Filters are per thread, and may kill for a clone() that the thread never makes itself.
bool is_filtered(pid_t pid, pid_t tid) {
  std::string seccomp = status_field(pid, tid, "Seccomp");
  return !seccomp.empty() && seccomp != "0";
}

std::uint64_t signal_mask(pid_t tid) {
  std::uint64_t mask = 0;
  if (ptrace(PTRACE_GETSIGMASK, tid, sizeof mask, &mask) != 0)
    throw Failure(Step::kPlaceTrampoline, "target-exited",
                  "cannot read the signal mask of thread " + std::to_string(tid), errno, tid);
  return mask;
}

void place_trampoline(StoppedThread& thread, const Memory& memory, const TrampolineSite& site) {
  std::vector<unsigned char> code(arch::reachscan_trampoline, arch::reachscan_trampoline_end);
  if (!arch::in_system_call(thread.registers))
    thread.registers.rip = arch::resume_address(
        thread.tid, thread.registers, [&](std::uint64_t at, void* buffer, std::size_t length) {
          return memory.try_read(at, buffer, length);
        });
  auto literals =
      arch::trampoline_literals(arch::resume_registers(thread.registers), signal_mask(thread.tid));
  auto offset = arch::reachscan_trampoline_literals - arch::reachscan_trampoline;
  std::memcpy(code.data() + offset, &literals, sizeof literals);
  memory.write(Step::kPlaceTrampoline, site.address, code.data(), code.size());
}

// Only a scan that was killed leaves its trampoline behind. A signal handler may then have
// interrupted the thread inside it, and will return there.
bool still_needed(const StoppedThread& thread, const Memory& memory, const TrampolineSite& site) {
  std::array<std::uint64_t, 512> words;
  for (std::uint64_t at = thread.registers.rsp; at < thread.registers.rsp + kStackSearched;
       at += sizeof words) {
    if (!memory.try_read(at, words.data(), sizeof words)) return false;
    for (std::uint64_t word : words)
      if (inside(word, site)) return true;
  }
  return false;
}

void require_free_site(Freeze& freeze, const Memory& memory, const TrampolineSite& site) {
  for (const StoppedThread& thread : freeze.threads())
    if (inside(thread.registers.rip, site))
      throw Failure(Step::kPlaceTrampoline, kRetry, "another scan of this process is just ending",
                    EBUSY, thread.tid, site.address);
  std::vector<unsigned char> present(trampoline_size());
  memory.read(Step::kPlaceTrampoline, site.address, present.data(), present.size());
  if (std::all_of(present.begin(), present.end(), [](unsigned char byte) { return byte == 0; }))
    return;
  for (const StoppedThread& thread : freeze.threads())
    if (still_needed(thread, memory, site))
      throw Failure(Step::kPlaceTrampoline, kRetry,
                    "a signal handler will return into code that a killed scan has left behind",
                    EBUSY, thread.tid, site.address);
}

// Goes on to the next stop: the entry or exit of a call, a clone, or a signal.
template <typename Meanwhile>
WaitStatus run_to_stop(pid_t tid, int signal, Clock::time_point deadline, Meanwhile meanwhile) {
  if (ptrace(PTRACE_SYSCALL, tid, nullptr, static_cast<long>(signal)) == 0) {
    meanwhile();
    WaitStatus status = wait_for(tid, Step::kRunTrampoline, deadline);
    if (status.stopped()) return status;
  }
  throw Failure(Step::kRunTrampoline, "target-exited",
                "a thread ended while the target was being cloned", errno, tid);
}

WaitStatus run_to_stop(pid_t tid, int signal, Clock::time_point deadline) {
  return run_to_stop(tid, signal, deadline, [] {});
}

bool is_at_call(const WaitStatus& status) { return status.signal() == (SIGTRAP | 0x80); }

bool brings_signal(const WaitStatus& status) { return status.event() == 0 && !is_at_call(status); }

// The one commit point: before it nothing of the thread has changed, after it the thread finds its
// own way back. False if a signal came in between: then all is as it was, and the signal pending.
bool enter_trampoline(StoppedThread& thread, const TrampolineSite& site,
                      Clock::time_point deadline) {
  arch::Registers registers = thread.registers;
  registers.rip = site.address;
  registers.orig_rax = ~0ull;  // no call to restart
  if (!arch::set_registers(thread.tid, registers))
    throw Failure(Step::kRunTrampoline, "target-exited", "cannot set registers", errno, thread.tid);
  WaitStatus status = run_to_stop(thread.tid, 0, deadline);
  if (!brings_signal(status)) return true;
  arch::set_registers(thread.tid, thread.registers);
  thread.pending_signal = status.signal();
  return false;
}

// The trampoline does not clone where the clone would become a child of the target.
void require_no_refusal(pid_t tid, const arch::Registers& registers, const TrampolineSite& site) {
  auto result = static_cast<std::int64_t>(registers.rax);
  // At the entry of a call the kernel shows ENOSYS.
  if (registers.orig_rax == SYS_clone && result < 0 && result != -ENOSYS)
    throw Failure(Step::kRunTrampoline, "clone-refused",
                  std::string("the kernel refused to clone the target: ") +
                      std::strerror(static_cast<int>(-result)),
                  static_cast<int>(-result), tid);
  if (registers.orig_rax == SYS_rt_sigprocmask &&
      registers.rsi == site.address + arch::own_signals_offset())
    throw Failure(Step::kRunTrampoline, "clone-refused",
                  "orphans of the target come back to it as children (it is a subreaper)", 0, tid);
}

// Runs a task on until its clone() has succeeded or been refused; calls meanwhile() when that call
// has begun. All signals are blocked but SIGSTOP, which is passed on.
template <typename Meanwhile>
pid_t run_to_clone(pid_t tid, const TrampolineSite& site, Clock::time_point deadline,
                   Meanwhile meanwhile) {
  int signal = 0;
  bool cloning = false, done = false;
  for (;;) {
    WaitStatus status = run_to_stop(tid, signal, deadline, [&] {
      if (cloning && !std::exchange(done, true)) meanwhile();
    });
    signal = brings_signal(status) ? status.signal() : 0;
    if (status.event() == PTRACE_EVENT_CLONE) {
      unsigned long born = 0;
      ptrace(PTRACE_GETEVENTMSG, tid, nullptr, &born);
      return static_cast<pid_t>(born);
    }
    arch::Registers registers;
    if (!is_at_call(status) || !arch::get_registers(tid, registers)) continue;
    require_no_refusal(tid, registers, site);
    cloning = registers.orig_rax == SYS_clone;
  }
}

void wait_for_birth(pid_t tid, Clock::time_point deadline) {
  if (!wait_for(tid, Step::kAdoptClone, deadline).stopped())
    throw Failure(Step::kAdoptClone, "internal", "the clone was killed at its birth", 0, tid);
}

// While we trace the middleman, the target's wait for it does not return.
struct MiddlemanGuard {
  pid_t tid;
  ~MiddlemanGuard() { ptrace(PTRACE_DETACH, tid, nullptr, nullptr); }
};

// Makes some thread start a middleman, and calls use(middleman), which is stopped at its birth.
// Returns the thread, which is still stopped inside the trampoline.
template <typename Use>
pid_t with_middleman(Freeze& freeze, const Memory& memory, const TrampolineSite& site,
                     Clock::time_point deadline, Use use) {
  require_free_site(freeze, memory, site);
  for (StoppedThread* thread : candidates(freeze.threads())) {
    if (is_filtered(freeze.pid(), thread->tid))
      throw Failure(Step::kPlaceTrampoline, "clone-refused",
                    "a thread of the target runs under a seccomp filter, which may forbid clone()",
                    0, thread->tid);
    place_trampoline(*thread, memory, site);
    if (!enter_trampoline(*thread, site, deadline)) continue;
    pid_t middleman = run_to_clone(thread->tid, site, deadline, [] {});
    MiddlemanGuard guard{middleman};
    wait_for_birth(middleman, deadline);
    // It is no thread of the target, and ends when it has done its work, with us or without.
    make_urgent(middleman);
    use(middleman);
    return thread->tid;
  }
  throw Failure(Step::kPlaceTrampoline, kRetry, "every thread is about to receive a signal", EBUSY,
                freeze.pid());
}

arch::Registers registers_at_call(pid_t tid, Clock::time_point deadline) {
  int signal = 0;
  for (;;) {
    WaitStatus status = run_to_stop(tid, signal, deadline);
    signal = brings_signal(status) ? status.signal() : 0;
    arch::Registers registers;
    if (is_at_call(status) && arch::get_registers(tid, registers)) return registers;
  }
}

// Where the middleman would clone, it makes a userfaultfd: the next instruction is its end, so the
// descriptor, which is in no table but its own, cannot outlive us.
int make_fault_descriptor(pid_t middleman, Clock::time_point deadline) {
  arch::Registers registers = registers_at_call(middleman, deadline);
  registers.orig_rax = SYS_userfaultfd;
  registers.rdi = O_CLOEXEC | O_NONBLOCK | kUserModeOnly;
  if (!arch::set_registers(middleman, registers))
    throw Failure(Step::kRunTrampoline, "target-exited", "cannot set registers", errno, middleman);
  registers = registers_at_call(middleman, deadline);
  auto made = static_cast<std::int64_t>(registers.rax);
  int error = made < 0 ? static_cast<int>(-made) : 0;
  int process = static_cast<int>(syscall(SYS_pidfd_open, middleman, 0));
  int ours = error == 0 ? static_cast<int>(syscall(SYS_pidfd_getfd, process, made, 0)) : -1;
  if (error == 0 && ours < 0) error = errno;
  close(process);
  if (ours < 0)
    throw Failure(Step::kTrackWrites, "unsupported-method",
                  std::string("the kernel gives no means to track what the target writes: ") +
                      std::strerror(error),
                  error, middleman);
  return ours;
}

}  // namespace

TrampolineSite find_trampoline_site(pid_t pid, const Memory& memory) {
  std::optional<MapEntry> vdso = find_vdso(pid);
  Elf64_Ehdr header{};
  if (!vdso || !memory.try_read(vdso->start, &header, sizeof header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    throw Failure(Step::kPlaceTrampoline, "clone-refused", "the target has no vdso", 0, pid);
  std::uint64_t image_end =
      vdso->start + header.e_shoff + std::uint64_t{header.e_shnum} * header.e_shentsize;
  std::uint64_t address = (image_end + 15) & ~15ull;
  std::uint64_t page_end = (image_end + kPage - 1) & ~(kPage - 1);
  if (image_end < vdso->start || page_end > vdso->end || address + trampoline_size() > page_end)
    throw Failure(Step::kPlaceTrampoline, "clone-refused",
                  "the target's vdso has no room behind its image", 0, pid, vdso->start);
  return {vdso->start, address};
}

CloneResult clone_target(Freeze& freeze, const Memory& memory, const TrampolineSite& site,
                         Clock::time_point deadline, const std::function<void()>& meanwhile) {
  CloneResult result{};
  result.injected = with_middleman(freeze, memory, site, deadline, [&](pid_t middleman) {
    result.clone = run_to_clone(middleman, site, deadline, meanwhile);
    wait_for_birth(result.clone, deadline);
  });
  if (ptrace(PTRACE_SETOPTIONS, result.clone, nullptr, PTRACE_O_EXITKILL) != 0)
    throw Failure(Step::kAdoptClone, "internal", "cannot take charge of the clone", errno,
                  result.clone);
  return result;
}

FaultDescriptor borrow_fault_descriptor(Freeze& freeze, const Memory& memory,
                                        const TrampolineSite& site, Clock::time_point deadline) {
  FaultDescriptor result{};
  result.injected = with_middleman(freeze, memory, site, deadline, [&](pid_t middleman) {
    result.descriptor = make_fault_descriptor(middleman, deadline);
  });
  return result;
}

// At the exit of the last call no signal has been delivered yet, and none can be before the thread
// has its own registers back. For a process that was stopped (SIGSTOP, ^Z) it is the only way: its
// thread would stop again inside the trampoline, and stay there.
void leave_trampoline(Freeze& freeze, const Memory& memory, const TrampolineSite& site,
                      pid_t injected, Clock::time_point deadline) {
  std::vector<StoppedThread>& threads = freeze.threads();
  auto thread =
      std::find_if(threads.begin(), threads.end(),
                   [injected](const StoppedThread& other) { return other.tid == injected; });
  for (int signal = 0;;) {
    WaitStatus status = run_to_stop(injected, signal, deadline);
    signal = brings_signal(status) ? status.signal() : 0;
    arch::Registers now;
    if (!is_at_call(status) || !arch::get_registers(injected, now)) continue;
    if (now.orig_rax != SYS_rt_sigprocmask || now.rax != 0) continue;
    arch::set_registers(injected, thread->registers);
    break;
  }
  std::vector<unsigned char> nothing(trampoline_size());
  memory.write(Step::kRelease, site.address, nothing.data(), nothing.size());
}

}  // namespace reachscan::helper
