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
#include <iterator>
#include <string_view>
#include <vector>

#include "arch/code.hpp"

namespace reachscan::arch {

// Everything ever needed from a stopped thread, since it may be running again by then. A whole
// number of words. The first fields are what the kernel writes to core files.
struct Registers {
  std::uint64_t x[31];
  std::uint64_t sp;
  std::uint64_t pc;
  std::uint64_t pstate;
  std::uint64_t thread_pointer;
  std::uint64_t system_call;         // its number, between entry and exit; otherwise -1
  std::uint64_t at_system_call;      // whether the next instruction makes one
  std::uint64_t behind_system_call;  // whether the last one made one
  std::uint64_t short_words;         // whether it is the thread of a 32-bit program
};

constexpr std::size_t kCoreRegisterBytes = offsetof(Registers, thread_pointer);
constexpr std::uint64_t kNoSystemCall = ~0ull;

inline bool transfer(int request, pid_t tid, std::uint32_t set, void* values, std::size_t bytes) {
  iovec io{values, bytes};
  return ptrace(static_cast<decltype(PTRACE_CONT)>(request), tid, static_cast<int>(set), &io) ==
             0 &&
         io.iov_len == bytes;
}

// What the kernel has of a thread of a 32-bit program.
struct ShortRegisters {
  std::uint32_t r[13];
  std::uint32_t sp, lr, pc, cpsr;
  std::uint32_t first_argument;  // of its last system call
};
constexpr unsigned kShortLinkRegister = 14;

inline void widen(const ShortRegisters& from, Registers& r) {
  r = {};
  for (unsigned i = 0; i < std::size(from.r); ++i) r.x[i] = from.r[i];
  r.sp = from.sp;
  r.x[kShortLinkRegister] = from.lr;
  r.pc = from.pc;
  r.pstate = from.cpsr;
  r.short_words = 1;
}

inline void narrow(const Registers& r, ShortRegisters& to) {
  for (unsigned i = 0; i < std::size(to.r); ++i) to.r[i] = static_cast<std::uint32_t>(r.x[i]);
  to.sp = static_cast<std::uint32_t>(r.sp);
  to.lr = static_cast<std::uint32_t>(r.x[kShortLinkRegister]);
  to.pc = static_cast<std::uint32_t>(r.pc);
  to.cpsr = static_cast<std::uint32_t>(r.pstate);
}

// The kernel returns as many registers as the program has.
inline bool get_general_registers(pid_t tid, Registers& r) {
  r.short_words = 0;
  iovec io{&r, kCoreRegisterBytes};
  if (ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &io) != 0) return false;
  ShortRegisters of_short;
  if (io.iov_len == sizeof of_short) {
    __builtin_memcpy(&of_short, &r, sizeof of_short);
    widen(of_short, r);
  }
  return r.short_words != 0 || io.iov_len == kCoreRegisterBytes;
}

// Bytes of an instruction that makes a system call there: Thumb, if the thread executes that, has
// shorter ones.
inline std::uint64_t system_call_bytes(const Registers& r) {
  constexpr std::uint64_t kThumb = 1u << 5;
  return r.short_words != 0 && (r.pstate & kThumb) != 0 ? 2 : kInstructionBytes;
}

inline void note_system_calls(pid_t tid, Registers& r) {
  if (r.system_call != kNoSystemCall) {
    r.at_system_call = r.behind_system_call = 0;
    return;
  }
  // Two instructions: the last one and the next one.
  std::uint64_t bytes = system_call_bytes(r);
  auto code = static_cast<std::uint64_t>(
      ptrace(PTRACE_PEEKTEXT, tid, reinterpret_cast<void*>(r.pc - bytes), nullptr));
  std::uint64_t call = r.short_words == 0 ? kSystemCallInstruction
                       : bytes == 2       ? kThumbSystemCall
                                          : kShortSystemCall;
  std::uint64_t mask = (1ull << 8 * bytes) - 1;
  r.at_system_call = (code >> 8 * bytes & mask) == call ? 1 : 0;
  r.behind_system_call = (code & mask) == call ? 1 : 0;
}

inline bool get_registers(pid_t tid, Registers& r) {
  int number = -1;
  if (!get_general_registers(tid, r)) return false;
  std::size_t word = r.short_words != 0 ? sizeof(std::uint32_t) : sizeof(std::uint64_t);
  if (!transfer(PTRACE_GETREGSET, tid, NT_ARM_TLS, &r.thread_pointer, word) ||
      !transfer(PTRACE_GETREGSET, tid, NT_ARM_SYSTEM_CALL, &number, sizeof number))
    return false;
  r.system_call = static_cast<std::uint64_t>(std::int64_t{number});
  note_system_calls(tid, r);
  return true;
}

inline bool set_short_registers(pid_t tid, const Registers& r) {
  ShortRegisters registers;
  if (!transfer(PTRACE_GETREGSET, tid, NT_PRSTATUS, &registers, sizeof registers)) return false;
  narrow(r, registers);
  return transfer(PTRACE_SETREGSET, tid, NT_PRSTATUS, &registers, sizeof registers);
}

// Also drops the thread's pending system call: with a result that requests a restart, the kernel
// would rewind a thread that is resumed elsewhere.
inline bool set_registers(pid_t tid, Registers& r) {
  auto number = static_cast<int>(r.system_call);
  bool set = r.short_words != 0
                 ? set_short_registers(tid, r)
                 : transfer(PTRACE_SETREGSET, tid, NT_PRSTATUS, &r, kCoreRegisterBytes);
  return set && transfer(PTRACE_SETREGSET, tid, NT_ARM_SYSTEM_CALL, &number, sizeof number);
}

// Returns all of them, each as a word.
inline auto register_words(const Registers& r) {
  return std::bit_cast<std::array<std::uint64_t, sizeof r / 8>>(r);
}

inline std::uint64_t program_counter(const Registers& r) { return r.pc; }
inline void set_program_counter(Registers& r, std::uint64_t address) { r.pc = address; }
inline std::uint64_t stack_pointer(const Registers& r) { return r.sp; }
inline std::uint64_t thread_pointer(const Registers& r) { return r.thread_pointer; }
inline std::uint64_t link_register(const Registers& r) {
  return r.x[r.short_words != 0 ? kShortLinkRegister : 30];
}

// Makes the thread resume at `address`, without restarting a call that was interrupted and without
// requiring a landing pad there (PSTATE.BTYPE).
inline void resume_at(Registers& r, std::uint64_t address) {
  constexpr std::uint64_t kBranchType = 3u << 10;
  r.pc = address;
  r.pstate &= ~kBranchType;
  r.system_call = kNoSystemCall;
}

// The scalable vector registers (SVE), where they exist: the number of their set and of its note in
// core files.
constexpr std::uint32_t kVectorState = NT_ARM_SVE;

// Whether every function may change all vector registers: v8 to v15 keep their lower halves.
constexpr bool kCallsClobberVectors = false;

// Takes over other registers from a note in a core file.
inline void take_core_note(std::uint32_t type, std::string_view value, Registers& r) {
  if (type == NT_ARM_TLS && value.size() >= sizeof r.thread_pointer)
    __builtin_memcpy(&r.thread_pointer, value.data(), sizeof r.thread_pointer);
}

// Appends such a state as words, since any of them may hold a pointer.
inline void append_vector_words(const std::uint64_t* state, std::size_t count,
                                std::vector<std::uint64_t>& words) {
  while (count > 0 && state[count - 1] == 0) --count;
  words.insert(words.end(), state, state + count);
}

// If a thread uses the scalable registers, their set includes all other vector registers, which are
// parts of them. Without SVE, the kernel has no such set.
inline bool get_vector_words(pid_t tid, std::vector<std::uint64_t>& words) {
  std::array<std::uint64_t, 2048> state;
  iovec io{state.data(), sizeof state};
  constexpr std::size_t kFlags = 12;  // size, max_size, vl, max_vl, flags
  constexpr std::size_t kHeaderBytes = 16;
  if (ptrace(PTRACE_GETREGSET, tid, static_cast<int>(kVectorState), &io) == 0 &&
      io.iov_len > kHeaderBytes) {
    std::uint16_t flags;
    __builtin_memcpy(&flags, reinterpret_cast<const char*>(state.data()) + kFlags, sizeof flags);
    constexpr std::uint16_t kScalable = 1;
    if ((flags & kScalable) != 0) {
      append_vector_words(state.data() + kHeaderBytes / 8, (io.iov_len - kHeaderBytes) / 8, words);
      return true;
    }
  }
  io = {state.data(), sizeof state};
  if (ptrace(PTRACE_GETREGSET, tid, NT_PRFPREG, &io) != 0 &&
      ptrace(PTRACE_GETREGSET, tid, NT_ARM_VFP, &io) != 0)  // of 32-bit programs
    return false;
  append_vector_words(state.data(), io.iov_len / sizeof(std::uint64_t), words);
  return true;
}

// Sets up the registers for a call to a function of one argument that never returns.
inline void begin_function(Registers& r, std::uint64_t entry, std::uint64_t argument,
                           std::uint64_t stack_top) {
  resume_at(r, entry);
  r.x[0] = argument;
  r.x[29] = r.x[30] = 0;
  r.sp = stack_top & ~15ull;
}

// Sets up the registers for a call of a function, which returns to `back`.
inline void begin_returning(Registers& r, std::uint64_t entry,
                            const std::array<std::uint64_t, 4>& arguments, std::uint64_t stack_top,
                            std::uint64_t back) {
  begin_function(r, entry, arguments[0], stack_top);
  for (unsigned i = 1; i < arguments.size(); ++i) r.x[i] = arguments[i];
  r.x[30] = back;
}

inline std::uint64_t returned_value(const Registers& r) { return r.x[0]; }

// Moves a thread that has stopped at trap() of instructions.hpp past it: this processor stops
// before the instruction.
inline void skip_trap(pid_t tid) {
  Registers r;
  if (!get_registers(tid, r)) return;  // it was killed, which the next stop reports
  r.pc += kInstructionBytes;
  set_registers(tid, r);
}

// Says why part of a stopped thread's memory cannot be read as usual; null if all can. Pointers to
// tagged memory contain the tag, and where tags are checked, accesses without it fault.
inline const char* unreadable_memory(pid_t tid) {
  constexpr std::uint64_t kChecks = 6;  // PR_MTE_TCF_MASK
  std::uint64_t control = 0;
  bool known = transfer(PTRACE_GETREGSET, tid, NT_ARM_TAGGED_ADDR_CTRL, &control, sizeof control);
  return known && (control & kChecks) != 0 ? "has its memory tagged (MTE)" : nullptr;
}

// Says why a thread cannot run the trampoline; null if it can. A process is of one kind only,
// according to its program.
inline const char* unfit_state(const Registers&) { return nullptr; }

}  // namespace reachscan::arch
