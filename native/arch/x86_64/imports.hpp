// Words that a loader fills in with the addresses of functions, and jumps that stand in for these,
// or for the first bytes of a function.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace reachscan::arch {

// Relocations: an address of the image itself; a function that is called; an address of one.
constexpr std::uint32_t kRelativeRelocation = R_X86_64_RELATIVE;

constexpr bool imports_call(std::uint32_t relocation) { return relocation == R_X86_64_JUMP_SLOT; }

constexpr bool imports_pointer(std::uint32_t relocation) {
  return relocation == R_X86_64_GLOB_DAT || relocation == R_X86_64_64;
}

// endbr64; jmp *8(%rip) over what fills the line; where to.
struct Stub {
  static constexpr std::size_t kTarget = 16;

  explicit Stub(std::uint64_t address) { std::memcpy(code + kTarget, &address, sizeof address); }

  unsigned char code[24] = {0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 6,    0,
                            0,    0,    0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc};
};

// What a jump takes.
constexpr std::size_t kStartBytes = 5;
constexpr std::uint64_t kJumpReach = std::uint64_t{1} << 31;

// The word that lies at `from`, with its first bytes replaced by a jump.
inline std::uint64_t with_jump(std::uint64_t word, std::uint64_t from, std::uint64_t to) {
  auto distance = static_cast<std::uint32_t>(to - (from + kStartBytes));
  unsigned char jump[kStartBytes] = {0xe9};
  std::memcpy(jump + 1, &distance, sizeof distance);
  std::memcpy(&word, jump, sizeof jump);
  return word;
}

}  // namespace reachscan::arch
