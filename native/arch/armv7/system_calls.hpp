// System calls, from a tracer's point of view.
#pragma once

#include <linux/audit.h>
#include <linux/futex.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>

#include "arch/registers.hpp"

namespace reachscan::arch {

// What a seccomp filter sees as the architecture.
constexpr std::uint32_t kAuditArchitecture = AUDIT_ARCH_ARM;

// The signature that this processor's C libraries pass to rseq().
constexpr std::uint32_t kRseqSignature = 0xe7f5def3;

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

inline void set_arguments(Registers& r, const CallArguments& arguments) {
  for (unsigned i = 0; i < arguments.size(); ++i) r.r[i] = static_cast<std::uint32_t>(arguments[i]);
}

// Sets up the registers so that a thread resumed at the gadget makes this call.
inline void begin_call(Registers& r, std::uint64_t gadget, std::uint64_t number,
                       const CallArguments& arguments) {
  resume_at(r, gadget);
  r.r[kNumberRegister] = static_cast<std::uint32_t>(number);
  set_arguments(r, arguments);
}

// At the entry or exit of a call: its number, its second argument and its result, which is -ENOSYS
// at the entry.
inline std::uint64_t call_number(const Registers& r) { return r.r[kNumberRegister]; }
inline std::uint64_t first_argument(const Registers& r) { return r.r[0]; }
inline std::uint64_t second_argument(const Registers& r) { return r.r[1]; }
inline std::int64_t call_result(const Registers& r) {
  if (r.call_stop == CallStop::kEntry) return -ENOSYS;
  // Addresses may have their highest bit set.
  constexpr std::uint32_t kFirstError = 0xfffff001;
  return r.r[0] < kFirstError ? std::int64_t{r.r[0]}
                              : std::int64_t{static_cast<std::int32_t>(r.r[0])};
}

// Returns whether a thread has stopped at the entry of a call, and not at a breakpoint.
inline bool is_at_call(const Registers& r) { return r.call_stop != CallStop::kNone; }

// At the entry of a call that the kernel does not make: what the caller gets instead.
inline void answer_call(Registers& r, std::uint64_t result) {
  r.system_call = kNoSystemCall;
  r.r[0] = static_cast<std::uint32_t>(result);
}

// The kernel has rewound an interrupted thread to the instruction that makes the call. A thread
// that is about to make a call looks the same. With some calls the allocator gets its memory: they
// are never interrupted, and their caller may be in the middle of an operation.
inline bool will_restart(const Registers& r) {
  return r.at_system_call != 0 && !is_short_memory_call(r.r[kNumberRegister]);
}

inline bool in_system_call(const Registers& r) { return r.at_system_call != 0; }

// Returns whether the current call of a thread waits for another thread to release a lock. Waits
// for a condition or a time-out use other operations.
inline bool waits_for_lock(const Registers& r) {
  auto operation = static_cast<int>(second_argument(r)) & FUTEX_CMD_MASK;
  bool is_futex = call_number(r) == SYS_futex || call_number(r) == SYS_futex_time64;
  return is_futex && (operation == FUTEX_WAIT || operation == FUTEX_LOCK_PI);
}

// An interrupt stop makes some calls (epoll_wait, sigtimedwait, semop, recv with a time-out) fail
// with EINTR; the thread is past the call then.
inline bool was_cut_short(const Registers& r) {
  return r.behind_system_call != 0 && static_cast<std::int32_t>(r.r[0]) == -EINTR;
}

// The kernel keeps to itself which call it will restart, and how.
inline bool goes_on_by_other_call(const Registers&) { return false; }

// Makes the thread restart the call. The result has replaced its first argument.
inline void repair_interrupted_call(Registers& r, std::uint64_t first_argument) {
  r.r[0] = static_cast<std::uint32_t>(first_argument);
  r.pc -= system_call_bytes(r);
  r.at_system_call = 1;
  r.behind_system_call = 0;
}

// At a stop the kernel has either rewound the thread to the call already or never will. It always
// shows the arguments of the last call.
constexpr bool kRewindsAtOnce = true;
inline bool pretend_call(pid_t, bool) { return true; }

// A call that goes on where it was interrupted (nanosleep) has another number then,
// restart_syscall, which the kernel keeps to itself. A thread that is sent elsewhere meanwhile must
// have it.
constexpr bool kHidesRestart = true;
inline void reveal_restart(Registers& r) { r.r[kNumberRegister] = SYS_restart_syscall; }

// Returns the registers with which the thread resumes in user mode: they are unchanged.
inline Registers resume_registers(const Registers& r) { return r; }

// At the entry of a system call: makes the kernel execute another one instead.
inline void replace_call(Registers& r, std::uint64_t number, const CallArguments& arguments) {
  r.system_call = static_cast<std::int32_t>(number);
  set_arguments(r, arguments);
}

// There is one way to make a call only.
template <typename Read>
bool made_native_call(const Registers&, Read) {
  return true;
}

}  // namespace reachscan::arch
