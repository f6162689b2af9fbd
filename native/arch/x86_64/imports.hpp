// GOT entries, which a loader fills in with the addresses of functions, and jumps that replace
// these, or the first bytes of a function.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace reachscan::arch {

// Relocations: an address within the image; a function that is called; the address of a function.
constexpr std::uint32_t kRelativeRelocation = R_X86_64_RELATIVE;

constexpr bool imports_call(std::uint32_t relocation) { return relocation == R_X86_64_JUMP_SLOT; }

constexpr bool imports_pointer(std::uint32_t relocation) {
  return relocation == R_X86_64_GLOB_DAT || relocation == R_X86_64_64;
}

// endbr64; jmp *8(%rip) over the padding; the target.
struct Stub {
  static constexpr std::size_t kTarget = 16;

  explicit Stub(std::uint64_t address) { std::memcpy(code + kTarget, &address, sizeof address); }

  unsigned char code[24] = {0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 6,    0,
                            0,    0,    0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc};
};

// The size and reach of a jump.
constexpr std::size_t kJumpBytes = 5;
constexpr std::uint64_t kJumpReach = std::uint64_t{1} << 31;

// Returns how many bytes of a function that starts with this word are replaced.
constexpr std::size_t start_bytes(std::uint64_t) { return kJumpBytes; }

// Returns where such a jump at `from` leads; 0 if the word does not begin with one.
inline std::uint64_t jump_target(std::uint64_t word, std::uint64_t from) {
  if ((word & 0xff) != 0xe9) return 0;
  return from + kJumpBytes + static_cast<std::uint64_t>(static_cast<std::int32_t>(word >> 8));
}

// Returns the word at `from` with its first bytes replaced by a jump.
inline std::uint64_t with_jump(std::uint64_t word, std::uint64_t from, std::uint64_t to) {
  auto distance = static_cast<std::uint32_t>(to - (from + kJumpBytes));
  unsigned char jump[kJumpBytes] = {0xe9};
  std::memcpy(jump + 1, &distance, sizeof distance);
  std::memcpy(&word, jump, sizeof jump);
  return word;
}

}  // namespace reachscan::arch
