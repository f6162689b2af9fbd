// System calls, as a tracer sees and makes them.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>

#include "arch/registers.hpp"

namespace reachscan::arch {

constexpr unsigned kNumberRegister = 8;

// What rseq() calls of this processor's C libraries are signed with.
constexpr std::uint32_t kRseqSignature = 0xd428bc00;

extern "C" const unsigned char reachscan_gadget[];
extern "C" const unsigned char reachscan_gadget_end[];

inline std::uint64_t gadget_size() {
  return static_cast<std::uint64_t>(reachscan_gadget_end - reachscan_gadget);
}

// Whether a thread has stopped at the breakpoint of the gadget.
inline bool is_behind_gadget(const Registers& r, std::uint64_t gadget) {
  return r.pc == gadget + kInstructionBytes;
}

using CallArguments = std::array<std::uint64_t, 6>;

// The registers with which a thread makes this call when it goes on at the gadget.
inline void begin_call(Registers& r, std::uint64_t gadget, std::uint64_t number,
                       const CallArguments& arguments) {
  go_on_at(r, gadget);
  r.x[kNumberRegister] = number;
  for (unsigned i = 0; i < arguments.size(); ++i) r.x[i] = arguments[i];
}

// At the entry or the exit of a call: its number, its second argument and its result, which is
// -ENOSYS at the entry. There x7 tells which of the two it is.
inline std::uint64_t call_number(const Registers& r) {
  return r.system_call != kNoSystemCall ? r.system_call : r.x[kNumberRegister];
}
inline std::uint64_t second_argument(const Registers& r) { return r.x[1]; }
inline std::int64_t call_result(const Registers& r) {
  bool at_entry = r.system_call != kNoSystemCall && r.x[7] == 0;
  return at_entry ? -ENOSYS : static_cast<std::int64_t>(r.x[0]);
}

// The kernel has sent back whom it interrupted to the instruction that makes the call. So who is
// about to make one looks the same; but these are never interrupted, and what makes them may have
// something half done.
inline bool will_restart(const Registers& r) {
  if (r.at_system_call == 0) return false;
  switch (r.x[kNumberRegister]) {
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

// Whether the call that a thread is in waits for another thread to unlock something. Waits for a
// condition or a time are other operations.
inline bool waits_for_lock(const Registers& r) {
  auto operation = static_cast<int>(second_argument(r)) & FUTEX_CMD_MASK;
  return call_number(r) == SYS_futex && (operation == FUTEX_WAIT || operation == FUTEX_LOCK_PI);
}

// An interrupt stop makes some calls (epoll_wait, sigtimedwait, semop, recv with a time-out) give
// up with EINTR; the thread is behind the call then.
inline bool has_given_up(const Registers& r) {
  return r.behind_system_call != 0 && static_cast<std::int64_t>(r.x[0]) == -EINTR;
}

// The thread makes the call again. Its result is where its first argument was.
inline void repair_interrupted_call(Registers& r, std::uint64_t first_argument) {
  r.x[0] = first_argument;
  r.pc -= kInstructionBytes;
  r.at_system_call = 1;
  r.behind_system_call = 0;
}

// At a stop the kernel has moved the thread back to the call already, or never will, and it shows
// no first argument: only while it takes the thread for one in a call.
constexpr bool kRewindsAtOnce = true;

// For as long as `on`. Nothing else comes of it: the thread's result asks for no restart.
inline bool pretend_call(pid_t tid, bool on) {
  Registers r;
  if (!get_registers(tid, r)) return false;
  auto number = on ? static_cast<int>(r.x[kNumberRegister]) : -1;
  return transfer(PTRACE_SETREGSET, tid, NT_ARM_SYSTEM_CALL, &number, sizeof number);
}

// The registers with which the thread goes on in user mode: those that it has.
inline Registers resume_registers(const Registers& r) { return r; }

// At the entry of a system call: has the kernel execute another one instead.
inline void replace_call(Registers& r, std::uint64_t number, const CallArguments& arguments) {
  r.system_call = number;
  for (std::size_t i = 0; i < arguments.size(); ++i) r.x[i] = arguments[i];
}

}  // namespace reachscan::arch
