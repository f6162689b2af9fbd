// How C libraries mangle pointers, in a jmp_buf for instance: they xor them with a secret and, on
// this processor, rotate them left by 17 bits (9 in 32-bit programs).
#pragma once

#include "arch/address_space.hpp"

namespace reachscan::arch {

// The layout that glibc's setjmp() writes (struct __jmp_buf_tag). Both pointers are mangled.
constexpr std::uint64_t kJumpRegisters = kWord == 8 ? 8 : 6;
constexpr std::uint64_t kJumpStackPointer = (kJumpRegisters - 2) * kWord;
constexpr std::uint64_t kJumpProgramCounter = (kJumpRegisters - 1) * kWord;
constexpr std::uint64_t kJumpMaskFlag = kJumpRegisters * kWord;  // an int
constexpr std::uint64_t kJumpMask = kJumpMaskFlag + kWord, kJumpBytes = kJumpMask + 128;

constexpr std::uint64_t unmangled(std::uint64_t value, std::uint64_t secret) {
  constexpr unsigned kTurn = kWord == 8 ? 17 : 9;
  return static_cast<Word>(value >> kTurn | value << (8 * kWord - kTurn)) ^ secret;
}

// The inverse.
constexpr std::uint64_t mangled(std::uint64_t pointer, std::uint64_t secret) {
  constexpr unsigned kTurn = kWord == 8 ? 17 : 9;
  const std::uint64_t hidden = static_cast<Word>(pointer ^ secret);
  return static_cast<Word>(hidden << kTurn | hidden >> (8 * kWord - kTurn));
}

}  // namespace reachscan::arch
