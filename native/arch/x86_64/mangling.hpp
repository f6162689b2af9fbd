// How C libraries hide pointers, in a jmp_buf for instance: they xor them with a secret and, on
// this processor, rotate them to the left by 17 bits.
#pragma once

#include "arch/lanes.hpp"

namespace reachscan::arch {

// What setjmp() of glibc writes (struct __jmp_buf_tag). Both pointers are hidden.
constexpr std::uint64_t kJumpStackPointer = 48, kJumpProgramCounter = 56;
constexpr std::uint64_t kJumpMaskSaved = 64;  // an int
constexpr std::uint64_t kJumpMask = 72, kJumpBytes = 200;

constexpr std::uint64_t unmangled(std::uint64_t value, std::uint64_t secret) {
  return (value >> 17 | value << 47) ^ secret;
}

[[REACHSCAN_WIDE]] inline Lanes unmangled(Lanes values, std::uint64_t secret) {
  return (values >> 17 | values << 47) ^ all_lanes(secret);
}

}  // namespace reachscan::arch
