// System calls, from a tracer's point of view.
#pragma once

#include <linux/audit.h>
#include <linux/futex.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>

#include "arch/registers.hpp"

namespace reachscan::arch {

// The kernel's internal results of interrupted calls (include/linux/errno.h), visible to a tracer.
constexpr std::int64_t kRestartSys = -512;
constexpr std::int64_t kRestartNoIntr = -513;
constexpr std::int64_t kRestartNoHand = -514;
constexpr std::int64_t kRestartBlock = -516;
constexpr std::uint64_t kRestartSyscallNumber = 219;
constexpr std::uint64_t kSyscallLength = 2;

// What a seccomp filter sees as the architecture.
constexpr std::uint32_t kAuditArchitecture = AUDIT_ARCH_X86_64;

// The signature that this processor's C libraries pass to rseq().
constexpr std::uint32_t kRseqSignature = 0x53053053;

extern "C" const unsigned char reachscan_gadget[];
extern "C" const unsigned char reachscan_gadget_end[];

inline std::uint64_t gadget_size() {
  return static_cast<std::uint64_t>(reachscan_gadget_end - reachscan_gadget);
}

// Returns whether a thread has stopped at the gadget's breakpoint.
inline bool is_after_gadget(const Registers& r, std::uint64_t gadget) {
  return r.rip == gadget + gadget_size();
}

inline std::uint64_t gadget_breakpoint(std::uint64_t gadget) { return gadget + kSyscallLength; }

using CallArguments = std::array<std::uint64_t, 6>;

inline void set_arguments(Registers& r, const CallArguments& arguments) {
  r.rdi = arguments[0];
  r.rsi = arguments[1];
  r.rdx = arguments[2];
  r.r10 = arguments[3];
  r.r8 = arguments[4];
  r.r9 = arguments[5];
}

// Sets up the registers so that a thread resumed at the gadget makes this call.
inline void begin_call(Registers& r, std::uint64_t gadget, std::uint64_t number,
                       const CallArguments& arguments) {
  resume_at(r, gadget);
  r.rax = number;
  set_arguments(r, arguments);
}

inline bool in_system_call(const Registers& r) {
  return static_cast<std::int64_t>(r.orig_rax) >= 0;
}

// At the entry or exit of a call: its number, its second argument and its result, which is -ENOSYS
// at the entry.
inline std::uint64_t call_number(const Registers& r) { return r.orig_rax; }
inline std::uint64_t first_argument(const Registers& r) {
  return runs_native_code(r) ? r.rdi : r.rbx;
}
inline std::uint64_t second_argument(const Registers& r) {
  return runs_native_code(r) ? r.rsi : r.rcx;
}
inline std::int64_t call_result(const Registers& r) { return static_cast<std::int64_t>(r.rax); }

// Returns whether a thread has stopped at the entry of a call, and not at a breakpoint.
inline bool is_at_call(const Registers& r) { return in_system_call(r); }

// At the entry of a call that the kernel does not make: what the caller gets instead.
inline void answer_call(Registers& r, std::uint64_t result) {
  resume_at(r, r.rip);
  r.rax = result;
}

inline bool will_restart(const Registers& r) {
  std::int64_t result = call_result(r);
  return in_system_call(r) && (result == kRestartSys || result == kRestartNoIntr ||
                               result == kRestartNoHand || result == kRestartBlock);
}

// Returns whether the current call of a thread waits for another thread to release a lock. Waits
// for a condition or a time-out use other operations.
inline bool waits_for_lock(const Registers& r) {
  auto operation = static_cast<int>(second_argument(r)) & FUTEX_CMD_MASK;
  constexpr std::uint64_t kShortFutex = 240, kShortFutexTime64 = 422;  // of 32-bit programs
  std::uint64_t number = call_number(r);
  bool is_futex = runs_native_code(r) ? number == SYS_futex
                                      : number == kShortFutex || number == kShortFutexTime64;
  return is_futex && (operation == FUTEX_WAIT || operation == FUTEX_LOCK_PI);
}

// An interrupt stop makes some calls (epoll_wait, sigtimedwait, semop, recv with a time-out) fail
// with EINTR.
inline bool was_cut_short(const Registers& r) {
  return in_system_call(r) && call_result(r) == -EINTR;
}

// Returns whether the interrupted call would go on where it was (nanosleep, poll), by another call,
// restart_syscall, which a seccomp filter may forbid.
inline bool goes_on_by_other_call(const Registers& r) {
  return in_system_call(r) && call_result(r) == kRestartBlock;
}

// Changed to ERESTARTNOHAND, the kernel restarts the call unless a handler really runs.
inline void repair_interrupted_call(Registers& r, std::uint64_t) {
  r.rax = static_cast<std::uint64_t>(kRestartNoHand);
}

// The kernel rewinds a thread to the call only when it resumes, and still knows all arguments.
constexpr bool kRewindsAtOnce = false;
inline bool pretend_call(pid_t, bool) { return true; }

// A call that goes on where it was interrupted shows its own number.
constexpr bool kHidesRestart = false;
inline void reveal_restart(Registers&) {}

// Returns whether a call that is to go on, or to start again, was made by `syscall`. After int
// 0x80, numbers mean other calls. `read`: reads memory, returns false on failure.
template <typename Read>
bool made_native_call(const Registers& r, Read read) {
  if (!will_restart(r)) return true;
  unsigned char code[kSyscallLength];
  return read(r.rip - kSyscallLength, code, sizeof code) && code[0] == 0x0f && code[1] == 0x05;
}

// Returns the registers with which the thread resumes in user mode, as the kernel would set them.
inline Registers resume_registers(Registers r) {
  if (!will_restart(r)) return r;
  bool by_block = call_result(r) == kRestartBlock;
  r.rax = by_block ? kRestartSyscallNumber : r.orig_rax;
  r.rip -= kSyscallLength;
  return r;
}

// At the entry of a system call: makes the kernel execute another one instead.
inline void replace_call(Registers& r, std::uint64_t number, const CallArguments& arguments) {
  r.orig_rax = number;
  set_arguments(r, arguments);
}

}  // namespace reachscan::arch
