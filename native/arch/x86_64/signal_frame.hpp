// What a signal handler has on the stack while it runs, and what getcontext() saves: ucontext_t.
#pragma once

#include <cstdint>

#include "arch/address_space.hpp"

namespace reachscan::arch {

// Offsets in ucontext_t of programs with words of this size (ABI of Linux and glibc): its link, its
// stack and its registers. kBytes are enough to recognise one.
template <unsigned kBytesOfWord>
struct Context;

template <>
struct Context<8> {
  static constexpr std::uint64_t kLink = 8, kStack = 16, kStackSize = 32;
  static constexpr std::uint64_t kStackPointer = 160, kProgramCounter = 168;
  static constexpr std::uint64_t kVectors = 224, kBytes = 424;
};

template <>
struct Context<4> {
  static constexpr std::uint64_t kLink = 4, kStack = 8, kStackSize = 16;
  static constexpr std::uint64_t kStackPointer = 48, kProgramCounter = 76;
  static constexpr std::uint64_t kVectors = 96, kBytes = 236;
};

// Returns whether readable memory is marked as a context: getcontext() makes each one point to its
// own floating-point state.
inline bool is_marked_context(std::uint64_t at) {
  Word vectors;
  __builtin_memcpy(&vectors, reinterpret_cast<const void*>(at + Context<kWord>::kVectors),
                   sizeof vectors);
  return vectors == at + Context<kWord>::kBytes;
}

// Returns whether the frame of a handler without SA_SIGINFO may be at `at`. In 32-bit programs,
// only the segment registers in it show that.
inline bool is_plain_frame(std::uint64_t at) {
  constexpr std::uint64_t kCodeSegment = 80, kStackSegment = 92;
  constexpr Word kUserCode = 0x23, kUserData = 0x2b;
  Word code, stack;
  __builtin_memcpy(&code, reinterpret_cast<const void*>(at + kCodeSegment), sizeof code);
  __builtin_memcpy(&stack, reinterpret_cast<const void*>(at + kStackSegment), sizeof stack);
  return kWord == 4 && code == kUserCode && stack == kUserData;
}

// Returns whether memory at `at` holds this code.
template <unsigned kLength, typename Read>
bool has_code(std::uint64_t at, const unsigned char (&code)[kLength], Read read) {
  unsigned char found[kLength];
  return read(at, found, kLength) && __builtin_memcmp(found, code, kLength) == 0;
}

// Where that word is, from the context on.
constexpr std::int64_t kFrameWordFromContext = -8;

// Returns the context in the signal frame that starts with this word at `at`, 0 if there is none.
// It follows the address of the code that returns from a handler: mov rax, 15; syscall. In 32-bit
// programs, a handler with SA_SIGINFO gets the address of its context. Others only get the
// registers, at the distances from `at` that they would have in a context 12 bytes before it.
// `read(address, buffer, bytes)` returns whether it read all of them.
template <unsigned kBytesOfWord = kWord, typename Read>
std::uint64_t context_of_frame(std::uint64_t at, std::uint64_t word, Read read) {
  if constexpr (kBytesOfWord == 8) {
    constexpr unsigned char kEndOfHandler[] = {0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05};
    return has_code(word, kEndOfHandler, read) ? at + sizeof word : 0;
  } else {
    constexpr unsigned char kEndOfHandler[] = {0xb8, 173, 0, 0, 0, 0xcd, 0x80};
    constexpr unsigned char kEndOfPlainHandler[] = {0x58, 0xb8, 119, 0, 0, 0, 0xcd, 0x80};
    if (has_code(word, kEndOfPlainHandler, read)) return at - 12;
    std::uint32_t context = 0;
    if (!has_code(word, kEndOfHandler, read) || !read(at + 12, &context, sizeof context)) return 0;
    return context;
  }
}

// Returns false if it cannot be read. This processor has no link register.
template <unsigned kBytesOfWord = kWord, typename Read>
bool read_link_register(std::uint64_t, std::uint64_t& link, Read) {
  link = 0;
  return true;
}

}  // namespace reachscan::arch
