#include "helper/trampoline.hpp"

#include <elf.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <optional>
#include <vector>

#include "helper/process.hpp"

namespace reachscan::helper {
namespace {

using wire::Step;

constexpr std::uint64_t kPage = 4096;

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

// A thread blocked in a call that will restart is surely in no restartable sequence and has no
// signal on its way; a thread in user mode is second best.
StoppedThread* choose_thread(std::vector<StoppedThread>& threads) {
  auto rank = [](const StoppedThread& thread) {
    if (thread.pending_signal != 0) return 3;
    if (arch::will_restart(thread.registers)) return 0;
    return arch::in_system_call(thread.registers) ? 2 : 1;
  };
  auto best = std::min_element(threads.begin(), threads.end(),
                               [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  return &*best;
}

std::uint64_t signal_mask(pid_t tid) {
  std::uint64_t mask = 0;
  if (ptrace(PTRACE_GETSIGMASK, tid, sizeof mask, &mask) != 0)
    throw Failure(Step::kPlaceTrampoline, "target-exited",
                  "cannot read the signal mask of thread " + std::to_string(tid), errno, tid);
  return mask;
}

void place_trampoline(const StoppedThread& thread, const Memory& memory,
                      const TrampolineSite& site) {
  std::vector<unsigned char> code(arch::reachscan_trampoline, arch::reachscan_trampoline_end);
  auto literals =
      arch::trampoline_literals(arch::resume_registers(thread.registers), signal_mask(thread.tid));
  auto offset = arch::reachscan_trampoline_literals - arch::reachscan_trampoline;
  std::memcpy(code.data() + offset, &literals, sizeof literals);
  memory.write(Step::kPlaceTrampoline, site.address, code.data(), code.size());
}

void resume_to_next_call(pid_t tid) {
  if (ptrace(PTRACE_SYSCALL, tid, nullptr, nullptr) != 0)
    throw Failure(Step::kRunTrampoline, "target-exited",
                  "a thread ended while the target was being cloned", errno, tid);
}

// Runs a task through the trampoline until its clone() has succeeded or been refused.
pid_t run_to_clone(pid_t tid, Clock::time_point deadline) {
  for (;;) {
    resume_to_next_call(tid);
    WaitStatus status = wait_for(tid, Step::kRunTrampoline, deadline);
    if (!status.stopped())
      throw Failure(Step::kRunTrampoline, "target-exited",
                    "a thread ended while the target was being cloned", 0, tid);
    if (status.event() == PTRACE_EVENT_CLONE) {
      unsigned long born = 0;
      ptrace(PTRACE_GETEVENTMSG, tid, nullptr, &born);
      return static_cast<pid_t>(born);
    }
    if (status.signal() != (SIGTRAP | 0x80)) continue;
    arch::Registers registers;
    if (!arch::get_registers(tid, registers)) continue;
    auto result = static_cast<std::int64_t>(registers.rax);
    // At the entry of a call the kernel shows ENOSYS.
    if (registers.orig_rax == SYS_clone && result < 0 && result != -ENOSYS)
      throw Failure(Step::kRunTrampoline, "clone-refused",
                    std::string("the kernel refused to clone the target: ") +
                        std::strerror(static_cast<int>(-result)),
                    static_cast<int>(-result), tid);
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

// The clone, made by a middleman that the thread makes.
pid_t clone_through_middleman(pid_t tid, Clock::time_point deadline) {
  pid_t middleman = run_to_clone(tid, deadline);
  MiddlemanGuard guard{middleman};
  wait_for_birth(middleman, deadline);
  pid_t clone = run_to_clone(middleman, deadline);
  wait_for_birth(clone, deadline);
  return clone;
}

// A thread of a stopped process (SIGSTOP, ^Z) would stop again inside the trampoline, and stay
// there. It is followed to the trampoline's last call and gets its registers back from us.
void bring_back(StoppedThread& thread, Clock::time_point deadline) {
  for (;;) {
    resume_to_next_call(thread.tid);
    WaitStatus status = wait_for(thread.tid, Step::kRunTrampoline, deadline);
    arch::Registers now;
    if (!status.stopped() || !arch::get_registers(thread.tid, now))
      throw Failure(Step::kRunTrampoline, "target-exited", "a thread ended in the trampoline", 0,
                    thread.tid);
    bool unblocked =
        status.signal() == (SIGTRAP | 0x80) && now.orig_rax == SYS_rt_sigprocmask && now.rax == 0;
    if (!unblocked) continue;
    arch::set_registers(thread.tid, thread.registers);
    return;
  }
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
                         Clock::time_point deadline) {
  for (const StoppedThread& thread : freeze.threads())
    if (inside(thread.registers.rip, site))
      throw Failure(Step::kPlaceTrampoline, "retry", "another scan of this process is just ending",
                    EBUSY, thread.tid, site.address);

  StoppedThread& thread = *choose_thread(freeze.threads());
  // A signal on its way can only be delivered from the stop that it was found in.
  if (thread.pending_signal != 0)
    throw Failure(Step::kPlaceTrampoline, "retry", "every thread is about to receive a signal",
                  EBUSY, thread.tid);
  place_trampoline(thread, memory, site);
  arch::Registers registers = thread.registers;
  registers.rip = site.address;
  registers.orig_rax = ~0ull;  // no call to restart
  // The one commit point: before it nothing of the thread has changed, after it the thread finds
  // its own way back.
  if (!arch::set_registers(thread.tid, registers))
    throw Failure(Step::kRunTrampoline, "target-exited", "cannot set registers", errno, thread.tid);

  pid_t clone = clone_through_middleman(thread.tid, deadline);
  if (ptrace(PTRACE_SETOPTIONS, clone, nullptr, PTRACE_O_EXITKILL) != 0)
    throw Failure(Step::kAdoptClone, "internal", "cannot take charge of the clone", errno, clone);
  if (thread.in_group_stop) bring_back(thread, deadline);
  return {clone, thread.tid};
}

}  // namespace reachscan::helper
