// Runs a function in the clone until it returns, crashes, needs the kernel or takes too long.
#include "helper/sweep/target_call.hpp"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "arch/code.hpp"
#include "helper/stop/stops.hpp"
#include "helper/target/mappings.hpp"
#include "wire/protocol.hpp"

namespace reachscan::helper {
namespace {

using wire::Step;
using Outcome = abi::Call::Outcome;

constexpr auto kPoll = std::chrono::milliseconds(5);

// Resumes until the next system call, which the kernel does not make. Not all C libraries declare
// it.
constexpr int kResumeWithoutCalls = 31;  // PTRACE_SYSEMU

void resume_without_calls(pid_t tid) {
  if (ptrace(static_cast<decltype(PTRACE_CONT)>(kResumeWithoutCalls), tid, nullptr, nullptr) != 0)
    throw Failure(Step::kServeRequest, Code::kInternal,
                  "the clone of the target cannot be resumed without system calls", errno, tid);
}

bool is_wait(std::uint64_t number, std::uint64_t operation) {
  if (number != SYS_futex) return false;
  switch (static_cast<int>(operation) & FUTEX_CMD_MASK) {
    case FUTEX_WAIT:
    case FUTEX_WAIT_BITSET:
    case FUTEX_LOCK_PI:
    case FUTEX_LOCK_PI2:
      return true;
    default:
      return false;
  }
}

// In a process of one thread, in which all signals are blocked, these do nothing.
bool has_no_effect(std::uint64_t number, std::uint64_t operation) {
  constexpr int kWakes[] = {FUTEX_WAKE, FUTEX_WAKE_BITSET, FUTEX_UNLOCK_PI};
  int wanted = static_cast<int>(operation) & FUTEX_CMD_MASK;
  bool wakes = std::find(std::begin(kWakes), std::end(kWakes), wanted) != std::end(kWakes);
  return number == SYS_sched_yield || number == SYS_rt_sigprocmask ||
         (number == SYS_futex && wakes);
}

void finish(abi::Call& call, Outcome outcome, std::uint64_t value) {
  call.outcome = outcome;
  call.value = value;
}

}  // namespace

void TargetCalls::make(abi::Call& call, Clock::time_point deadline) {
  finish(call, Outcome::kForbidden, 0);
  if (!protect_shared_memory()) return;
  arch::Registers saved = clone_.registers();
  start(call, saved);
  auto limit = clone_.processor_time() + std::chrono::milliseconds(call.limit_ms);
  for (bool ended = false; !ended;) {
    WaitStatus status{};
    if (wait_until(clone_.tid(), Step::kServeRequest, Clock::now() + kPoll, status)) {
      ended = handle_stop(call, status);
    } else if (clone_.processor_time() > limit || Clock::now() > deadline) {
      stop_thread();
      finish(call, Outcome::kTooSlow, 0);
      ended = true;
    }
  }
  clone_.set_registers(saved);
}

// The target has this memory, too.
bool TargetCalls::protect_shared_memory() {
  if (protected_) return true;
  constexpr std::uint32_t kDecisive = wire::kShared | wire::kWrite;
  for (const MapEntry& entry : read_mappings(clone_.pid())) {
    if ((entry.perms & kDecisive) != kDecisive) continue;
    std::uint64_t protection = (entry.perms & wire::kRead) != 0 ? PROT_READ : PROT_NONE;
    if (clone_.call(SYS_mprotect, {entry.start, entry.end - entry.start, protection, 0, 0, 0}) < 0)
      return false;
  }
  protected_ = true;
  return true;
}

void TargetCalls::start(const abi::Call& call, arch::Registers registers) {
  std::uint64_t back = clone_.breakpoint();
  arch::begin_returning(
      registers, call.function,
      {call.arguments[0], call.arguments[1], call.arguments[2], call.arguments[3]}, call.stack_end,
      back);
  if (!arch::kReturnAddressInRegister)
    clone_.memory().write(Step::kServeRequest, arch::stack_pointer(registers), &back, sizeof back);
  clone_.set_registers(registers);
  resume_without_calls(clone_.tid());
}

void TargetCalls::fail_killed() const {
  throw Failure(Step::kRunSweeper, Code::kNoMemory,
                "the clone of the target was killed, probably for want of memory", 0, clone_.pid());
}

bool TargetCalls::handle_stop(abi::Call& call, WaitStatus status) {
  if (!status.stopped()) fail_killed();
  arch::Registers registers = clone_.registers();
  bool at_trap = status.event() == 0 && (status.signal() & ~0x80) == SIGTRAP;
  if (at_trap && clone_.is_at_breakpoint(registers)) {
    finish(call, Outcome::kReturned, arch::returned_value(registers));
    return true;
  }
  if (at_trap && arch::is_at_call(registers)) return handle_system_call(call, registers);
  if (status.event() == 0 && is_fault_signal(status.signal())) {
    finish(call, Outcome::kCrashed, arch::program_counter(registers));
    return true;
  }
  resume_without_calls(clone_.tid());  // an event, or a signal for the whole process group
  return false;
}

bool TargetCalls::handle_system_call(abi::Call& call, arch::Registers registers) {
  std::uint64_t number = arch::call_number(registers);
  std::uint64_t operation = arch::second_argument(registers);
  if (has_no_effect(number, operation)) {
    arch::answer_call(registers, 0);
    clone_.set_registers(registers);
    resume_without_calls(clone_.tid());
    return false;
  }
  bool waits = is_wait(number, operation);
  finish(call, waits ? Outcome::kWaits : Outcome::kNeedsKernel,
         waits ? arch::first_argument(registers) : number);
  return true;
}

void TargetCalls::stop_thread() {
  if (ptrace(PTRACE_INTERRUPT, clone_.tid(), nullptr, nullptr) != 0)
    throw Failure(Step::kServeRequest, Code::kInternal, "cannot interrupt the clone of the target",
                  errno, clone_.pid());
  WaitStatus status =
      wait_for(clone_.tid(), Step::kServeRequest, Clock::now() + std::chrono::seconds(10));
  if (!status.stopped()) fail_killed();
}

}  // namespace reachscan::helper
