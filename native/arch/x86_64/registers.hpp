// The registers of a stopped thread, named by purpose.
#pragma once

#include <elf.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace reachscan::arch {

// Everything ever needed from a stopped thread, since it may be running again by then. A whole
// number of words.
using Registers = user_regs_struct;

inline bool get_registers(pid_t tid, Registers& registers) {
  return ptrace(PTRACE_GETREGS, tid, nullptr, &registers) == 0;
}

inline bool set_registers(pid_t tid, Registers& registers) {
  // Not PTRACE_SETREGSET, which expects the registers of a 32-bit program in another order.
  return ptrace(PTRACE_SETREGS, tid, nullptr, &registers) == 0;
}

// Returns all of them, each as a word.
inline auto register_words(const Registers& r) {
  return std::bit_cast<std::array<std::uint64_t, sizeof r / 8>>(r);
}

inline std::uint64_t program_counter(const Registers& r) { return r.rip; }
inline void set_program_counter(Registers& r, std::uint64_t address) { r.rip = address; }
inline std::uint64_t stack_pointer(const Registers& r) { return r.rsp; }
// A 64-bit process may run 32-bit code, as Wine does. The trampoline is not such code.
inline bool runs_native_code(const Registers& r) {
  constexpr std::uint64_t kUserCodeSegment = 0x33;
  return r.cs == kUserCodeSegment;
}

// Says why a thread cannot run the trampoline; null if it can.
inline const char* unfit_state(const Registers& r) {
  constexpr std::uint64_t kTrap = 1 << 8, kAlignmentCheck = 1 << 18;
  if (!runs_native_code(r)) return "is executing 32-bit code";
  if ((r.eflags & kTrap) != 0) return "executes its instructions one by one";
  if ((r.eflags & kAlignmentCheck) != 0) return "has unaligned accesses checked";
  // The kernel refuses to set these, also to the value that they have.
  auto is_in_upper_half = [](std::uint64_t base) { return base >> 63 != 0; };
  if (is_in_upper_half(r.fs_base) || is_in_upper_half(r.gs_base))
    return "has a segment in the kernel's half of the address space";
  return nullptr;
}

// 32-bit programs keep it in gs_base and leave fs_base zero.
inline std::uint64_t thread_pointer(const Registers& r) {
  return runs_native_code(r) || r.fs_base != 0 ? r.fs_base : r.gs_base;
}
inline std::uint64_t link_register(const Registers&) { return 0; }  // there is none

// Makes the thread resume at `address`, without restarting a call that was interrupted.
inline void resume_at(Registers& r, std::uint64_t address) {
  r.rip = address;
  r.orig_rax = ~0ull;
}

// The part of the registers that core files contain.
constexpr std::size_t kCoreRegisterBytes = sizeof(Registers);

// The x87, SSE and AVX state: the number of its register set and of its note in core files.
constexpr std::uint32_t kVectorState = NT_X86_XSTATE;

// Whether every function may change all vector registers, so that its callers keep nothing there.
constexpr bool kCallsClobberVectors = true;

// Takes over other registers from a note in a core file: here there are none.
inline void take_core_note(std::uint32_t, std::string_view, Registers&) {}

// Appends such a state as words, since any of them may hold a pointer. Omits the zeros at the end:
// most of the state is room for registers that few threads use (AMX: 8 KB).
inline void append_vector_words(const std::uint64_t* state, std::size_t count,
                                std::vector<std::uint64_t>& words) {
  while (count > 0 && state[count - 1] == 0) --count;
  words.insert(words.end(), state, state + count);
}

inline bool get_vector_words(pid_t tid, std::vector<std::uint64_t>& words) {
  std::array<std::uint64_t, 2048> state;
  iovec io{state.data(), sizeof state};
  if (ptrace(PTRACE_GETREGSET, tid, static_cast<int>(kVectorState), &io) != 0) return false;
  append_vector_words(state.data(), io.iov_len / sizeof(std::uint64_t), words);
  return true;
}

// Sets up the registers for a call to a function of one argument that never returns.
inline void begin_function(Registers& r, std::uint64_t entry, std::uint64_t argument,
                           std::uint64_t stack_top) {
  resume_at(r, entry);
  r.rdi = argument;
  r.rsp = stack_top - 8;  // as after a call
  r.eflags &= ~0x400ull;  // string instructions count upwards
}

// Sets up the registers for a call of a function, which returns to an address that the caller has
// put on top of the stack.
inline void begin_returning(Registers& r, std::uint64_t entry,
                            const std::array<std::uint64_t, 4>& arguments, std::uint64_t stack_top,
                            std::uint64_t) {
  begin_function(r, entry, arguments[0], stack_top);
  r.rsi = arguments[1];
  r.rdx = arguments[2];
  r.rcx = arguments[3];
}

inline std::uint64_t returned_value(const Registers& r) { return r.rax; }

// Moves a thread that has stopped at trap() of instructions.hpp past it. This processor already
// stops there.
inline void skip_trap(pid_t) {}

// Says why part of a stopped thread's memory cannot be read as usual; null if all can.
inline const char* unreadable_memory(pid_t) { return nullptr; }

}  // namespace reachscan::arch
