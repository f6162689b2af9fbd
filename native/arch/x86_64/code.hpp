// The little machine code that is decoded: calls before a return address, system calls before a
// program counter, and instructions that name an address. `read(address, buffer, bytes)` returns
// whether it read all of them.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "arch/address_space.hpp"

namespace reachscan::arch {

enum class Call {
  kNone,         // no call precedes that address
  kDirect,       // a call to a fixed target
  kThroughStub,  // a call to a stub that jumps through a slot: the slot's value is the target
  kElsewhere,    // a call to anywhere, through a register or a table
};

// Replaces `target`, the address of a stub, by where the stub leads. Returns false if it is not a
// stub. A stub of a 32-bit library addresses its slot through a register, which is unknown here, so
// its target is 0.
template <unsigned kBytesOfWord = kWord, typename Read>
bool follow_stub(std::uint64_t& target, Read read) {
  unsigned char code[11];
  if (!read(target, code, sizeof code)) return false;
  unsigned at = code[0] == 0xf3 && code[1] == 0x0f ? 4 : 0;  // after endbr64
  if (code[at] == 0xf2) ++at;                                // bnd
  bool by_register = kBytesOfWord == 4 && code[at + 1] == 0xa3;
  if (code[at] != 0xff || (code[at + 1] != 0x25 && !by_register)) return false;
  std::int32_t distance;
  __builtin_memcpy(&distance, code + at + 2, sizeof distance);
  if constexpr (kBytesOfWord == 4) {
    target = 0;
    if (!by_register) read(static_cast<std::uint32_t>(distance), &target, kBytesOfWord);
    return true;
  }
  std::uint64_t slot = target + at + 6 + static_cast<std::uint64_t>(std::int64_t{distance});
  target = 0;
  read(slot, &target, sizeof target);
  return true;
}

// Returns the kind of call that returns to `address`.
template <unsigned kBytesOfWord = kWord, typename Read>
Call call_before(std::uint64_t address, std::uint64_t& target, Read read) {
  unsigned char code[7];
  if (!read(address - sizeof code, code, sizeof code)) return Call::kNone;
  if (code[2] == 0xe8) {
    std::int32_t distance;
    __builtin_memcpy(&distance, code + 3, sizeof distance);
    target = address + static_cast<std::uint64_t>(std::int64_t{distance});
    if (kBytesOfWord == 4) target = static_cast<std::uint32_t>(target);
    return follow_stub<kBytesOfWord>(target, read) ? Call::kThroughStub : Call::kDirect;
  }
  for (unsigned at = 0; at < sizeof code - 1; ++at)
    if (code[at] == 0xff && (code[at + 1] >> 3 & 7) == 2) return Call::kElsewhere;
  return Call::kNone;
}

// A function that keeps nothing on the stack returns to the word on top of the stack.
constexpr bool kReturnAddressInRegister = false;

// 32-bit programs make system calls through a function of the vdso, which pushes three registers.
// Moves a thread that has just made such a call to the return address of that function.
template <unsigned kBytesOfWord, typename Read>
void leave_system_call(std::uint64_t& pc, std::uint64_t& sp, Read read) {
  if constexpr (kBytesOfWord == 4) {
    constexpr unsigned char kAfterCall[] = {0xcd, 0x80, 0x5d, 0x5a, 0x59, 0xc3};
    unsigned char code[sizeof kAfterCall];
    std::uint32_t caller = 0;
    if (!read(pc - 2, code, sizeof code) || __builtin_memcmp(code, kAfterCall, sizeof code) != 0 ||
        !read(sp + 12, &caller, 4))
      return;
    pc = caller;
    sp += 16;
  }
}

struct SystemCall {
  bool made;
  bool known;  // whether its number is
  std::uint32_t number;
};

// With them, the allocator of a 32-bit program gets and releases memory: brk, munmap, mprotect,
// mremap, mmap2, madvise.
constexpr bool is_short_memory_call(std::uint32_t number) {
  for (std::uint32_t known : {45u, 91u, 125u, 163u, 192u, 219u})
    if (number == known) return true;
  return false;
}

// In 32-bit programs: mov eax, imm32; then other registers; then int 0x80, or a call to the vdso's
// function. If the number cannot be determined, no call is reported.
template <typename Read>
SystemCall short_system_call_at(std::uint64_t pc, Read read) {
  constexpr unsigned char kCall[] = {0x65, 0xff, 0x15, 0x10, 0, 0, 0}, kInterrupt[] = {0xcd, 0x80};
  constexpr unsigned kLength = 24;
  constexpr std::uint32_t kMaxCalls = 1024;
  unsigned char code[kLength];
  if (!read(pc - kLength, code, kLength)) return {false, false, 0};
  bool calls = __builtin_memcmp(code + kLength - sizeof kCall, kCall, sizeof kCall) == 0;
  bool interrupts =
      __builtin_memcmp(code + kLength - sizeof kInterrupt, kInterrupt, sizeof kInterrupt) == 0;
  if (!calls && !interrupts) return {false, false, 0};
  for (unsigned at = kLength - (calls ? sizeof kCall : sizeof kInterrupt) - 5 + 1; at-- > 0;) {
    std::uint32_t number;
    __builtin_memcpy(&number, code + at + 1, sizeof number);
    if (code[at] == 0xb8 && number < kMaxCalls) return {true, true, number};
  }
  return {false, false, 0};
}

// Returns the last system call of a thread that was interrupted at `pc` or has just returned there.
// Wrappers load the number directly before it: mov eax, imm32; syscall.
template <typename Read>
SystemCall system_call_at(std::uint64_t pc, Read read) {
  if constexpr (kWord == 4) return short_system_call_at(pc, read);
  unsigned char code[7];
  if (!read(pc - sizeof code, code, sizeof code) || code[5] != 0x0f || code[6] != 0x05)
    return {false, false, 0};
  std::uint32_t number;
  __builtin_memcpy(&number, code + 1, sizeof number);
  return {true, code[0] == 0xb8, number};
}

// Its 32-bit code names variables by their distance from the global offset table.
constexpr bool kNamesFromTable = kWord == 4;

// Instructions start at multiples of this.
constexpr std::uint64_t kCodeAlignment = 1;
// The most bytes that named_address() reads.
constexpr std::uint64_t kNamingBytes = 8;

// Returns the address that a `lea reg, [rip + x]` or, in programs at fixed addresses, a `mov reg,
// imm32` at `at` yields; 0 if it is neither.
inline std::uint64_t named_address(std::uint64_t at) {
  const auto* code = reinterpret_cast<const unsigned char*>(at);
  if ((code[0] == 0x48 || code[0] == 0x4c) && code[1] == 0x8d && (code[2] & 0xc7) == 0x05) {
    std::int32_t distance;
    __builtin_memcpy(&distance, code + 3, sizeof distance);
    return at + 7 + static_cast<std::uint64_t>(std::int64_t{distance});
  }
  if ((code[0] & 0xf8) != 0xb8) return 0;
  std::uint32_t address;
  __builtin_memcpy(&address, code + 1, sizeof address);
  return address;
}

// Returns the address that an instruction uses as [rip + x], where `at` is the address of its ModRM
// byte; 0 if that encodes another operand. If an immediate follows, the true address is a few bytes
// higher.
inline std::uint64_t used_address(std::uint64_t at) {
  const auto* code = reinterpret_cast<const unsigned char*>(at);
  if ((code[0] & 0xc7) != 0x05) return 0;
  std::int32_t distance;
  __builtin_memcpy(&distance, code + 1, sizeof distance);
  return at + 5 + static_cast<std::uint64_t>(std::int64_t{distance});
}

}  // namespace reachscan::arch
