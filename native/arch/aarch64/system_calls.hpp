// System calls, from a tracer's point of view.
#pragma once

#include <linux/audit.h>
#include <linux/futex.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>

#include "arch/registers.hpp"

namespace reachscan::arch {

constexpr std::uint64_t kSyscallLength = kInstructionBytes;
constexpr unsigned kNumberRegister = 8;
constexpr unsigned kShortNumberRegister = 7;  // in 32-bit programs

inline std::uint64_t number_in_register(const Registers& r) {
  return r.x[r.short_words != 0 ? kShortNumberRegister : kNumberRegister];
}

// What a seccomp filter sees as the architecture.
constexpr std::uint32_t kAuditArchitecture = AUDIT_ARCH_AARCH64;

// The signature that this processor's C libraries pass to rseq().
constexpr std::uint32_t kRseqSignature = 0xd428bc00;

extern "C" const unsigned char reachscan_gadget[];
extern "C" const unsigned char reachscan_gadget_end[];

inline std::uint64_t gadget_size() {
  return static_cast<std::uint64_t>(reachscan_gadget_end - reachscan_gadget);
}

// Returns whether a thread has stopped at the gadget's breakpoint.
inline bool is_after_gadget(const Registers& r, std::uint64_t gadget) {
  return r.pc == gadget + kInstructionBytes;
}

inline std::uint64_t gadget_breakpoint(std::uint64_t gadget) { return gadget + kInstructionBytes; }

using CallArguments = std::array<std::uint64_t, 6>;

// Sets up the registers so that a thread resumed at the gadget makes this call.
inline void begin_call(Registers& r, std::uint64_t gadget, std::uint64_t number,
                       const CallArguments& arguments) {
  resume_at(r, gadget);
  r.x[kNumberRegister] = number;
  for (unsigned i = 0; i < arguments.size(); ++i) r.x[i] = arguments[i];
}

// At the entry or exit of a call: its number, its second argument and its result, which is -ENOSYS
// at the entry. x7 distinguishes the two.
inline std::uint64_t call_number(const Registers& r) {
  return r.system_call != kNoSystemCall ? r.system_call : number_in_register(r);
}
inline std::uint64_t first_argument(const Registers& r) { return r.x[0]; }
inline std::uint64_t second_argument(const Registers& r) { return r.x[1]; }
inline std::int64_t call_result(const Registers& r) {
  bool at_entry = r.system_call != kNoSystemCall && r.x[7] == 0;
  return at_entry ? -ENOSYS : static_cast<std::int64_t>(r.x[0]);
}

// Returns whether a thread has stopped at the entry of a call, and not at a breakpoint.
inline bool is_at_call(const Registers& r) { return r.system_call != kNoSystemCall; }

// At the entry of a call that the kernel does not make: what the caller gets instead.
inline void answer_call(Registers& r, std::uint64_t result) {
  resume_at(r, r.pc);
  r.x[0] = result;
}

// The kernel has rewound an interrupted thread to the instruction that makes the call. A thread
// that is about to make a call looks the same. The calls below are never interrupted, and their
// caller may be in the middle of an operation.
inline bool will_restart(const Registers& r) {
  if (r.at_system_call == 0) return false;
  auto number = static_cast<std::uint32_t>(number_in_register(r));
  if (r.short_words != 0) return !is_short_memory_call(number);
  switch (number) {
    case SYS_brk:
    case SYS_mmap:
    case SYS_munmap:
    case SYS_mremap:
    case SYS_mprotect:
    case SYS_madvise:
      return false;
    default:
      return true;
  }
}

inline bool in_system_call(const Registers& r) { return r.at_system_call != 0; }

// Returns whether the current call of a thread waits for another thread to release a lock. Waits
// for a condition or a time-out use other operations.
inline bool waits_for_lock(const Registers& r) {
  auto operation = static_cast<int>(second_argument(r)) & FUTEX_CMD_MASK;
  constexpr std::uint64_t kShortFutex = 240, kShortFutexTime64 = 422;  // of 32-bit programs
  std::uint64_t number = call_number(r);
  bool is_futex = r.short_words == 0 ? number == SYS_futex
                                     : number == kShortFutex || number == kShortFutexTime64;
  return is_futex && (operation == FUTEX_WAIT || operation == FUTEX_LOCK_PI);
}

// An interrupt stop makes some calls (epoll_wait, sigtimedwait, semop, recv with a time-out) fail
// with EINTR; the thread is past the call then.
inline bool was_cut_short(const Registers& r) {
  return r.behind_system_call != 0 && static_cast<std::int32_t>(r.x[0]) == -EINTR;
}

// The kernel keeps to itself which call it will restart, and how.
inline bool goes_on_by_other_call(const Registers&) { return false; }

// Makes the thread restart the call. The result has replaced its first argument.
inline void repair_interrupted_call(Registers& r, std::uint64_t first_argument) {
  r.x[0] = first_argument;
  r.pc -= system_call_bytes(r);
  r.at_system_call = 1;
  r.behind_system_call = 0;
}

// At a stop the kernel has either rewound the thread to the call already or never will. It reveals
// the first argument only while it considers the thread to be in a call.
constexpr bool kRewindsAtOnce = true;

// Makes the kernel consider the thread to be in a call while `on`. This has no other effect: the
// thread's result does not request a restart.
inline bool pretend_call(pid_t tid, bool on) {
  Registers r;
  if (!get_registers(tid, r)) return false;
  auto number = on ? static_cast<int>(number_in_register(r)) : -1;
  return transfer(PTRACE_SETREGSET, tid, NT_ARM_SYSTEM_CALL, &number, sizeof number);
}

// A call that goes on where it was interrupted shows its own number.
constexpr bool kHidesRestart = false;
inline void reveal_restart(Registers&) {}

// Returns the registers with which the thread resumes in user mode: they are unchanged.
inline Registers resume_registers(const Registers& r) { return r; }

// At the entry of a system call: makes the kernel execute another one instead.
inline void replace_call(Registers& r, std::uint64_t number, const CallArguments& arguments) {
  r.system_call = number;
  for (std::size_t i = 0; i < arguments.size(); ++i) r.x[i] = arguments[i];
}

// There is one way to make a call only.
template <typename Read>
bool made_native_call(const Registers&, Read) {
  return true;
}

}  // namespace reachscan::arch
