// Everything about x86_64 that the helper needs.
//
// To add an architecture, supply in arch/<name>.hpp and arch/<name>_trampoline.S:
//  1. Registers, get_registers, set_registers, get_vector_words
//  2. where a system call's number, arguments and result live, and how long its instruction is
//  3. how the kernel marks an interrupted call that it would restart
//  4. the trampoline and its literals
//  5. a gadget: system call instruction followed by a breakpoint
#pragma once

#include <elf.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace reachscan::arch {

using Registers = user_regs_struct;

// The kernel's internal results of interrupted calls (include/linux/errno.h); a tracer sees them.
constexpr std::int64_t kRestartSys = -512;
constexpr std::int64_t kRestartNoIntr = -513;
constexpr std::int64_t kRestartNoHand = -514;
constexpr std::int64_t kRestartBlock = -516;
constexpr std::uint64_t kRestartSyscallNumber = 219;
constexpr std::uint64_t kSyscallLength = 2;

// ABI red zone: a leaf function may keep data this far below its stack pointer.
constexpr std::uint64_t kRedZone = 128;

constexpr std::array<unsigned char, 3> kSyscallGadget = {0x0f, 0x05, 0xcc};  // syscall; int3

inline bool get_registers(pid_t tid, Registers& registers) {
  return ptrace(PTRACE_GETREGS, tid, nullptr, &registers) == 0;
}

inline bool set_registers(pid_t tid, Registers& registers) {
  iovec io{&registers, sizeof registers};
  return ptrace(PTRACE_SETREGSET, tid, NT_PRSTATUS, &io) == 0;
}

// Appends the thread's x87, SSE and AVX state as words; any of them may hold a pointer. The zeros
// at the end are left out: most of the state is room for registers that few threads use (AMX: 8
// KB).
inline bool get_vector_words(pid_t tid, std::vector<std::uint64_t>& words) {
  std::array<std::uint64_t, 2048> state;
  iovec io{state.data(), sizeof state};
  if (ptrace(PTRACE_GETREGSET, tid, NT_X86_XSTATE, &io) != 0) return false;
  std::size_t count = io.iov_len / sizeof(std::uint64_t);
  while (count > 0 && state[count - 1] == 0) --count;
  words.insert(words.end(), state.begin(), state.begin() + static_cast<std::ptrdiff_t>(count));
  return true;
}

inline bool in_system_call(const Registers& r) {
  return static_cast<std::int64_t>(r.orig_rax) >= 0;
}

inline bool will_restart(const Registers& r) {
  auto result = static_cast<std::int64_t>(r.rax);
  return in_system_call(r) && (result == kRestartSys || result == kRestartNoIntr ||
                               result == kRestartNoHand || result == kRestartBlock);
}

// An interrupt stop makes some calls (epoll_wait, sigtimedwait, semop, recv with a time-out) give
// up with EINTR. Turned into ERESTARTNOHAND, the kernel restarts them unless a handler really runs.
inline bool repair_interrupted_call(Registers& r) {
  if (!in_system_call(r) || static_cast<std::int64_t>(r.rax) != -EINTR) return false;
  r.rax = static_cast<std::uint64_t>(kRestartNoHand);
  return true;
}

// The registers with which a thread begins a function of one argument that never returns.
inline void begin_function(Registers& r, std::uint64_t entry, std::uint64_t argument,
                           std::uint64_t stack_top) {
  r.rip = entry;
  r.rdi = argument;
  r.rsp = stack_top - 8;  // as behind a call
  r.orig_rax = ~0ull;
  r.eflags &= ~0x400ull;  // string instructions go upwards
}

// The registers with which the thread goes on in user mode, as the kernel would set them up.
inline Registers resume_registers(Registers r) {
  if (!will_restart(r)) return r;
  bool by_block = static_cast<std::int64_t>(r.rax) == kRestartBlock;
  r.rax = by_block ? kRestartSyscallNumber : r.orig_rax;
  r.rip -= kSyscallLength;
  return r;
}

// Where a thread in user mode goes on after an interruption. Inside a restartable sequence that is
// its abort handler, to which the kernel would have sent it, had we not moved its instruction
// pointer. `read(address, buffer, length)` reads the thread's memory.
template <typename Read>
std::uint64_t resume_address(pid_t tid, const Registers& r, Read read) {
  constexpr auto kGetRseqConfiguration = static_cast<decltype(PTRACE_CONT)>(0x420f);
  struct {
    std::uint64_t area;
    std::uint32_t size, signature, flags, reserved;
  } configuration{};
  struct {
    std::uint32_t version, flags;
    std::uint64_t start, length, abort;
  } section{};
  std::uint64_t pointer = 0;
  // Kernels that cannot tell (before 5.13) leave the sequence unprotected.
  if (in_system_call(r) ||
      ptrace(kGetRseqConfiguration, tid, sizeof configuration, &configuration) <= 0 ||
      configuration.area == 0 || !read(configuration.area + 8, &pointer, sizeof pointer) ||
      pointer == 0 || !read(pointer, &section, sizeof section))
    return r.rip;
  return r.rip - section.start < section.length ? section.abort : r.rip;
}

// The literals behind the trampoline's code, in the order of x86_64_trampoline.S.
struct TrampolineLiterals {
  std::uint64_t all_signals;
  std::uint64_t own_signals;
  std::uint64_t middleman_flags;
  std::uint64_t rax, rcx, rdx, rsi, rdi, r8, r10, r11, rip;
};

inline TrampolineLiterals trampoline_literals(const Registers& r, std::uint64_t own_signals,
                                              std::uint64_t middleman_flags) {
  return {~0ull, own_signals, middleman_flags, r.rax, r.rcx, r.rdx, r.rsi,
          r.rdi, r.r8,        r.r10,           r.r11, r.rip};
}

// At the entry of a system call: has the kernel execute another one instead.
inline void replace_call(Registers& r, std::uint64_t number, std::uint64_t argument) {
  r.orig_rax = number;
  r.rdi = argument;
  r.rsi = r.rdx = r.r10 = r.r8 = r.r9 = 0;
}

// A 64-bit process may run 32-bit code, as Wine does; the trampoline is no such code.
inline bool runs_native_code(const Registers& r) {
  constexpr std::uint64_t kUserCodeSegment = 0x33;
  return r.cs == kUserCodeSegment;
}

// Whether a system call of the thread may end in a SIGSYS instead of in the kernel
// (PR_SET_SYSCALL_USER_DISPATCH, Linux 5.11). Kernels before 6.4 do not tell.
inline bool dispatches_system_calls(pid_t tid) {
  constexpr auto kGetConfiguration = static_cast<decltype(PTRACE_CONT)>(0x4211);
  struct {
    std::uint64_t mode, selector, offset, length;
  } configuration{};
  return ptrace(kGetConfiguration, tid, sizeof configuration, &configuration) == 0 &&
         configuration.mode != 0;
}

extern "C" const unsigned char reachscan_trampoline[];
extern "C" const unsigned char reachscan_trampoline_reap[];
extern "C" const unsigned char reachscan_trampoline_literals[];
extern "C" const unsigned char reachscan_trampoline_end[];

// Sends a thread that has just made the middleman, which is dead by now, on to reap it.
inline void go_on_to_reap(Registers& r, std::uint64_t trampoline) {
  r.rdi = r.rax;
  r.rip = trampoline + static_cast<std::uint64_t>(reachscan_trampoline_reap - reachscan_trampoline);
}

// Where in the trampoline the mask lies with which a thread leaves it.
inline std::uint64_t own_signals_offset() {
  return static_cast<std::uint64_t>(reachscan_trampoline_literals - reachscan_trampoline) +
         offsetof(TrampolineLiterals, own_signals);
}

}  // namespace reachscan::arch
