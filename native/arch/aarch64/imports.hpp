// GOT entries, which a loader fills in with the addresses of functions, and jumps that replace
// these, or the first instructions of a function.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "arch/arm/decoded.hpp"

namespace reachscan::arch {

// Relocations: an address within the image; a function that is called; the address of a function.
constexpr std::uint32_t kRelativeRelocation = R_AARCH64_RELATIVE;

constexpr bool imports_call(std::uint32_t relocation) { return relocation == R_AARCH64_JUMP_SLOT; }

constexpr bool imports_pointer(std::uint32_t relocation) {
  return relocation == R_AARCH64_GLOB_DAT || relocation == R_AARCH64_ABS64;
}

// bti c; ldr x16, target; br x16; brk; the target.
struct Stub {
  static constexpr std::size_t kTarget = 16;

  explicit Stub(std::uint64_t address) { std::memcpy(code + kTarget, &address, sizeof address); }

  unsigned char code[24] = {0x5f, 0x24, 0x03, 0xd5, 0x70, 0x00, 0x00, 0x58,
                            0x00, 0x02, 0x1f, 0xd6, 0x00, 0x00, 0x20, 0xd4};
};

// The size and reach of a jump.
constexpr std::size_t kJumpBytes = kInstructionBytes;
constexpr std::uint64_t kJumpReach = std::uint64_t{1} << 27;

constexpr std::uint32_t kLandingPad = 0xd503245f;  // bti c

constexpr bool is_landing_pad(std::uint32_t instruction) {
  return (instruction & 0xffffff3f) == 0xd503241f;
}

// Instructions that sign the return address are landing pads as well (paciasp, pacibsp).
constexpr bool signs_return(std::uint32_t instruction) {
  return instruction == 0xd503233f || instruction == 0xd503237f;
}

// Returns how many bytes of a function that starts with this word are replaced: the processor may
// accept indirect calls of landing pads only (BTI), so one stays in front of the jump.
constexpr std::size_t start_bytes(std::uint64_t word) {
  auto first = static_cast<std::uint32_t>(word);
  return is_landing_pad(first) || signs_return(first) ? 2 * kInstructionBytes : kInstructionBytes;
}

constexpr std::uint32_t jump(std::uint64_t from, std::uint64_t to) {
  return 0x14000000u | (static_cast<std::uint32_t>((to - from) >> 2) & 0x3ffffff);
}

// Returns where such a jump at `from` leads; 0 if the word does not begin with one.
inline std::uint64_t jump_target(std::uint64_t word, std::uint64_t from) {
  if (is_landing_pad(static_cast<std::uint32_t>(word))) {
    word >>= 32;
    from += kInstructionBytes;
  }
  auto code = static_cast<std::uint32_t>(word);
  if ((code & 0xfc000000) != 0x14000000) return 0;
  constexpr unsigned kUnused = 64 - 26;
  auto distance = static_cast<std::int64_t>(std::uint64_t{code} << kUnused) >> (kUnused - 2);
  return from + static_cast<std::uint64_t>(distance);
}

// Returns the word at `from` with its first bytes replaced by a jump.
inline std::uint64_t with_jump(std::uint64_t word, std::uint64_t from, std::uint64_t to) {
  constexpr std::uint64_t kLower = 0xffffffff;
  if (start_bytes(word) == kInstructionBytes) return (word & ~kLower) | jump(from, to);
  auto first = static_cast<std::uint32_t>(word);
  return std::uint64_t{jump(from + kInstructionBytes, to)} << 32 |
         (signs_return(first) ? kLandingPad : first);
}

}  // namespace reachscan::arch
