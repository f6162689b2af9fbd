// What code.hpp decodes, in 32-bit programs: instructions of Thumb, of two or four bytes, and of
// the older Arm set, of four. Addresses of Thumb functions and return addresses into them are odd.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "arch/arm/decoded.hpp"

namespace reachscan::arch {

constexpr std::uint32_t kThumbSystemCall = 0xdf00;      // svc 0
constexpr std::uint32_t kShortSystemCall = 0xef000000;  // svc 0 of the Arm set
constexpr std::uint64_t kThumb = 1;                     // in an address

constexpr std::uint64_t sign_extended(std::uint64_t value, unsigned bits) {
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value << (64 - bits)) >> (64 - bits));
}

constexpr std::uint32_t low_half(std::uint64_t address) {
  return static_cast<std::uint32_t>(address);
}

// Returns the kind of call that returns to `address`, in Thumb. `target` loses its mark of Thumb.
template <typename Read>
Call thumb_call_before(std::uint64_t address, std::uint64_t& target, Read read) {
  std::uint16_t code[2];
  if (!read(address - sizeof code, code, sizeof code)) return Call::kNone;
  if ((code[1] & 0xff87) == 0x4780) return Call::kElsewhere;  // blx register
  bool to_arm = (code[1] & 0xd001) == 0xc000;                 // blx
  bool is_call = to_arm || (code[1] & 0xd000) == 0xd000;      // bl
  if ((code[0] & 0xf800) != 0xf000 || !is_call) return Call::kNone;
  std::uint64_t sign = code[0] >> 10 & 1;
  std::uint64_t first = ~(code[1] >> 13 ^ sign) & 1, second = ~(code[1] >> 11 ^ sign) & 1;
  std::uint64_t distance = sign << 24 | first << 23 | second << 22 |
                           std::uint64_t{code[0] & 0x3ffu} << 12 | (code[1] & 0x7ffu) << 1;
  target = low_half((to_arm ? address & ~3ull : address) + sign_extended(distance, 25));
  return Call::kDirect;
}

// The same in the Arm set.
template <typename Read>
Call arm_call_before(std::uint64_t address, std::uint64_t& target, Read read) {
  std::uint32_t code;
  if (address % kInstructionBytes != 0 || !read(address - sizeof code, &code, sizeof code))
    return Call::kNone;
  bool to_thumb = code >> 25 == 0x7d;                                           // blx
  if (!to_thumb && (code & 0x0ffffff0) == 0x012fff30) return Call::kElsewhere;  // blx register
  if (!to_thumb && ((code & 0x0f000000) != 0x0b000000 || code >> 28 == 15)) return Call::kNone;
  target = low_half(address + 4 + sign_extended(std::uint64_t{code & 0xffffff} << 2, 26));
  return Call::kDirect;
}

// Replaces `target`, the address of a stub, by where the stub leads. Returns false if it is not a
// stub: add ip, pc, #x; add ip, ip, #y; ldr pc, [ip, #z]!
template <typename Read>
bool follow_short_stub(std::uint64_t& target, Read read) {
  constexpr std::uint32_t kSwitch = 0x46c04778;  // bx pc; nop: from Thumb
  std::uint32_t code[4];
  if (target % 2 != 0 || !read(target, code, sizeof code)) return false;
  unsigned first = code[0] == kSwitch ? 1 : 0;
  if (code[first] >> 12 != 0xe28fc || code[first + 1] >> 12 != 0xe28cc ||
      code[first + 2] >> 12 != 0xe5bcf)
    return false;
  std::uint64_t slot = target + first * kInstructionBytes + 8;
  for (unsigned i = 0; i < 2; ++i) {
    std::uint32_t add = code[first + i], turn = (add >> 8 & 15) * 2, value = add & 0xff;
    slot += turn == 0 ? value : low_half(value >> turn | std::uint64_t{value} << (32 - turn));
  }
  target = 0;
  read(low_half(slot + (code[first + 2] & 0xfff)), &target, sizeof(std::uint32_t));
  target &= ~kThumb;
  return true;
}

template <typename Read>
Call short_call_before(std::uint64_t address, std::uint64_t& target, Read read) {
  Call call = (address & kThumb) != 0 ? thumb_call_before(address & ~kThumb, target, read)
                                      : arm_call_before(address, target, read);
  if (call != Call::kDirect) return call;
  return follow_short_stub(target, read) ? Call::kThroughStub : Call::kDirect;
}

constexpr unsigned kHalvesSearched = 12;

// Returns the system call at `pc`, in the Arm set. Wrappers load the number shortly before:
// mov r7, #imm8.
template <typename Read>
SystemCall arm_system_call(std::uint64_t pc, Read read) {
  std::uint32_t code;
  for (unsigned back = 1; back <= kHalvesSearched / 2; ++back) {
    if (!read(pc - back * kInstructionBytes, &code, sizeof code)) break;
    if (code >> 8 == 0xe3a070) return {true, true, code & 0xff};
  }
  return {false, false, 0};
}

// Returns the system call that a thread will make at `pc`, or has made right before it. In Thumb,
// its number is loaded by movs r7, #imm8. If it is not, no call is reported: glibc has a function
// that makes the calls of many others (__libc_do_syscall), the allocator's among them.
template <typename Read>
SystemCall short_system_call_at(std::uint64_t pc, Read read) {
  std::uint32_t arm[2];
  std::uint16_t thumb[2];
  if (pc % kInstructionBytes == 0 && read(pc - kInstructionBytes, arm, sizeof arm) &&
      (arm[0] == kShortSystemCall || arm[1] == kShortSystemCall))
    return arm_system_call(arm[1] == kShortSystemCall ? pc : pc - kInstructionBytes, read);
  if (!read(pc - 2, thumb, sizeof thumb)) return {false, false, 0};
  if (thumb[1] != kThumbSystemCall) pc -= 2;
  if (thumb[0] != kThumbSystemCall && thumb[1] != kThumbSystemCall) return {false, false, 0};
  for (unsigned back = 1; back <= kHalvesSearched; ++back) {
    if (!read(pc - 2 * back, thumb, sizeof thumb[0])) break;
    if (thumb[0] >> 8 == 0x27) return {true, true, thumb[0] & 0xffu};
  }
  return {false, false, 0};
}

// With them, the allocator gets and releases memory: brk, munmap, mprotect, mremap, mmap2, madvise.
constexpr bool is_short_memory_call(std::uint32_t number) {
  for (std::uint32_t known : {45u, 91u, 125u, 163u, 192u, 220u})
    if (number == known) return true;
  return false;
}

// Code is followed by its constants, at most this far away.
constexpr std::uint64_t kConstantReach = 4096 + 8;
constexpr unsigned kHalvesUntilAdd = 12;

// Returns the address that instructions at `at` form, 0 if there is none: a constant is loaded
// (ldr reg, [pc, #x]), and soon the program counter is added to it.
inline std::uint64_t short_named_address(std::uint64_t at) {
  const auto* code = reinterpret_cast<const std::uint16_t*>(at);
  bool is_long = code[0] == 0xf8df;
  if (!is_long && code[0] >> 11 != 0x09) return 0;
  unsigned target = is_long ? code[1] >> 12 : code[0] >> 8 & 7;
  std::uint64_t offset = is_long ? code[1] & 0xfffu : (code[0] & 0xffu) * 4;
  std::uint32_t constant;
  __builtin_memcpy(&constant, reinterpret_cast<const void*>(((at + 4) & ~3ull) + offset),
                   sizeof constant);
  const unsigned add = 0x4478 | (target & 7) | (target & 8) << 4;  // add reg, pc
  for (unsigned i = is_long ? 2 : 1; i < kHalvesUntilAdd; ++i)
    if (code[i] == add) return low_half(at + 2 * i + 4 + constant);
  return 0;
}

}  // namespace reachscan::arch
