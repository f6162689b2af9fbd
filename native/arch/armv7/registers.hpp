// The registers of a stopped thread, named by purpose.
#pragma once

#include <elf.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <vector>

#include "arch/code.hpp"

namespace reachscan::arch {

// Where in a system call a thread has been stopped to show it.
enum class CallStop : std::uint32_t { kNone, kEntry, kExit };

// Everything ever needed from a stopped thread, since it may be running again by then. A whole
// number of words of 64 bits. The first fields are what the kernel writes to core files.
struct Registers {
  std::uint32_t r[13];
  std::uint32_t sp, lr, pc, cpsr;
  std::uint32_t first_argument;  // of its last system call
  std::uint32_t thread_pointer;
  std::int32_t system_call;  // at the entry of one: the number of the call to be made
  CallStop call_stop;
  std::uint16_t at_system_call;      // whether the next instruction makes one
  std::uint16_t behind_system_call;  // whether the last one made one
};

constexpr std::size_t kCoreRegisterBytes = offsetof(Registers, thread_pointer);
constexpr unsigned kNumberRegister = 7;
constexpr unsigned kDirectionRegister = 12;
constexpr std::int32_t kNoSystemCall = -1;
constexpr std::uint32_t kThumbState = 1u << 5;
// Of a block of conditional instructions (IT), which of them are left.
constexpr std::uint32_t kConditionalState = 0x3fu << 10 | 3u << 25;

// Requests of this processor that not all C libraries declare.
constexpr auto kGetThreadArea = static_cast<decltype(PTRACE_CONT)>(22);
constexpr auto kSetSystemCall = static_cast<decltype(PTRACE_CONT)>(23);

inline bool transfer(decltype(PTRACE_CONT) request, pid_t tid, std::uint32_t set, void* values,
                     std::size_t bytes) {
  iovec io{values, bytes};
  return ptrace(request, tid, static_cast<int>(set), &io) == 0 && io.iov_len == bytes;
}

// Bytes of an instruction that makes a system call there.
inline std::uint32_t system_call_bytes(const Registers& r) {
  return (r.cpsr & kThumbState) != 0 ? 2 : kInstructionBytes;
}

inline std::uint32_t peek(pid_t tid, std::uint32_t address) {
  return static_cast<std::uint32_t>(
      ptrace(PTRACE_PEEKTEXT, tid, reinterpret_cast<void*>(address), nullptr));
}

// Looks at the last instruction and the next one, unless the thread is inside a call.
inline void note_system_calls(pid_t tid, Registers& r) {
  r.at_system_call = r.behind_system_call = 0;
  if (r.call_stop != CallStop::kNone) return;
  std::uint32_t bytes = system_call_bytes(r), last = peek(tid, r.pc - bytes);
  std::uint32_t next = bytes == 2 ? last >> 16 : peek(tid, r.pc);
  std::uint32_t call = bytes == 2 ? kThumbSystemCall : kShortSystemCall;
  r.at_system_call = next == call ? 1 : 0;
  r.behind_system_call = (bytes == 2 ? last & 0xffff : last) == call ? 1 : 0;
}

// At both stops the kernel shows in a register which one it is.
inline void note_call_stop(pid_t tid, Registers& r) {
  siginfo_t info{};
  bool stopped = ptrace(PTRACE_GETSIGINFO, tid, nullptr, &info) == 0 && info.si_signo == SIGTRAP &&
                 info.si_code == (SIGTRAP | 0x80);
  r.call_stop = !stopped                       ? CallStop::kNone
                : r.r[kDirectionRegister] == 0 ? CallStop::kEntry
                                               : CallStop::kExit;
  r.system_call = stopped ? static_cast<std::int32_t>(r.r[kNumberRegister]) : kNoSystemCall;
}

inline bool get_registers(pid_t tid, Registers& r) {
  if (!transfer(PTRACE_GETREGSET, tid, NT_PRSTATUS, &r, kCoreRegisterBytes) ||
      ptrace(kGetThreadArea, tid, nullptr, &r.thread_pointer) != 0)
    return false;
  note_call_stop(tid, r);
  note_system_calls(tid, r);
  return true;
}

// At the entry of a call, the kernel has its number already.
inline bool set_registers(pid_t tid, Registers& r) {
  return transfer(PTRACE_SETREGSET, tid, NT_PRSTATUS, &r, kCoreRegisterBytes) &&
         (r.call_stop != CallStop::kEntry ||
          ptrace(kSetSystemCall, tid, nullptr, static_cast<long>(r.system_call)) == 0);
}

// Returns all of them, each as a word, in the places where the kernel of aarch64 has those of such
// programs.
inline std::array<std::uint64_t, 39> register_words(const Registers& r) {
  constexpr unsigned kLink = 14, kStackPointer = 31;
  std::array<std::uint64_t, 39> words{};
  std::copy(std::begin(r.r), std::end(r.r), words.begin());
  words[kLink] = r.lr;
  std::uint64_t* rest = &words[kStackPointer];
  for (std::uint32_t value : {r.sp, r.pc, r.cpsr, r.thread_pointer}) *rest++ = value;
  return words;
}

inline std::uint64_t program_counter(const Registers& r) { return r.pc; }
inline void set_program_counter(Registers& r, std::uint64_t address) {
  r.pc = static_cast<std::uint32_t>(address);
}
inline std::uint64_t stack_pointer(const Registers& r) { return r.sp; }
inline std::uint64_t thread_pointer(const Registers& r) { return r.thread_pointer; }
inline std::uint64_t link_register(const Registers& r) { return r.lr; }

// Makes the thread resume at `address`, which is odd for Thumb, without making a call at whose
// entry it is.
inline void resume_at(Registers& r, std::uint64_t address) {
  r.cpsr &= ~(kConditionalState | kThumbState);
  if ((address & kThumb) != 0) r.cpsr |= kThumbState;
  r.pc = static_cast<std::uint32_t>(address & ~kThumb);
  r.system_call = kNoSystemCall;
}

// The kernel has no scalable vector registers.
constexpr std::uint32_t kVectorState = NT_ARM_VFP;

// Whether every function may change all vector registers: d8 to d15 are kept.
constexpr bool kCallsClobberVectors = false;

// Takes over other registers from a note in a core file: it has none.
inline void take_core_note(std::uint32_t, std::string_view, Registers&) {}

// Appends such a state as words, since any of them may hold a pointer.
inline void append_vector_words(const std::uint64_t* state, std::size_t count,
                                std::vector<std::uint64_t>& words) {
  while (count > 0 && state[count - 1] == 0) --count;
  words.insert(words.end(), state, state + count);
}

// Registers d0 to d31, of which processors may have only the first half, and a status. Any half of
// one may hold a pointer. Processors without them have no such set.
inline bool get_vector_words(pid_t tid, std::vector<std::uint64_t>& words) {
  constexpr std::size_t kVectors = 32;
  std::array<std::uint64_t, kVectors + 1> state{};
  iovec io{state.data(), sizeof state};
  if (ptrace(PTRACE_GETREGSET, tid, NT_ARM_VFP, &io) != 0) return errno == EINVAL;
  append_vector_words(state.data(), kVectors, words);
  return true;
}

// Sets up the registers for a call to a function of one argument that never returns.
inline void begin_function(Registers& r, std::uint64_t entry, std::uint64_t argument,
                           std::uint64_t stack_top) {
  resume_at(r, entry);
  r.r[0] = static_cast<std::uint32_t>(argument);
  r.r[7] = r.r[11] = r.lr = 0;
  r.sp = static_cast<std::uint32_t>(stack_top & ~7ull);
}

// Sets up the registers for a call of a function, which returns to `back`.
inline void begin_returning(Registers& r, std::uint64_t entry,
                            const std::array<std::uint64_t, 4>& arguments, std::uint64_t stack_top,
                            std::uint64_t back) {
  begin_function(r, entry, arguments[0], stack_top);
  for (unsigned i = 1; i < arguments.size(); ++i) r.r[i] = static_cast<std::uint32_t>(arguments[i]);
  r.lr = static_cast<std::uint32_t>(back);
}

inline std::uint64_t returned_value(const Registers& r) { return r.r[0]; }

// Moves a thread that has stopped at trap() of instructions.hpp past it: this processor stops
// before the instruction.
inline void skip_trap(pid_t tid) {
  Registers r;
  if (!get_registers(tid, r)) return;  // it was killed, which the next stop reports
  r.pc += system_call_bytes(r);
  set_registers(tid, r);
}

// Says why part of a stopped thread's memory cannot be read as usual; null if all can.
inline const char* unreadable_memory(pid_t) { return nullptr; }

// Says why a thread cannot run the trampoline; null if it can. What it ends with does not restore
// the state of a block of conditional instructions. At the exit of its last call, the kernel would
// take some contents of r0 for a request to restart the call.
inline const char* unfit_state(const Registers& r) {
  constexpr std::int32_t kFirstRestart = -516, kLastRestart = -512;
  auto result = static_cast<std::int32_t>(r.r[0]);
  if ((r.cpsr & kConditionalState) != 0) return "is in a block of conditional instructions";
  return result >= kFirstRestart && result <= kLastRestart
             ? "has a number in r0 that the kernel gives a meaning of its own"
             : nullptr;
}

}  // namespace reachscan::arch
