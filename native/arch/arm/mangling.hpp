// How C libraries mangle pointers, in a jmp_buf for instance: on this processor, they only xor them
// with a secret.
#pragma once

#include "arch/address_space.hpp"

namespace reachscan::arch {

// The layout that glibc's setjmp() writes (struct __jmp_buf_tag). Both pointers are mangled.
constexpr std::uint64_t kJumpStackPointer = kWord == 8 ? 104 : 0;
constexpr std::uint64_t kJumpProgramCounter = kWord == 8 ? 88 : 4;
constexpr std::uint64_t kJumpMaskFlag = kWord == 8 ? 176 : 256;  // an int
constexpr std::uint64_t kJumpMask = kJumpMaskFlag + kWord, kJumpBytes = kJumpMask + 128;

constexpr std::uint64_t unmangled(std::uint64_t value, std::uint64_t secret) {
  return value ^ secret;
}

// The inverse.
constexpr std::uint64_t mangled(std::uint64_t pointer, std::uint64_t secret) {
  return pointer ^ secret;
}

}  // namespace reachscan::arch
