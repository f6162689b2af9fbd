// What a signal handler leaves on the stack while it runs, and what getcontext() saves: ucontext_t.
#pragma once

#include <cstdint>

namespace reachscan::arch {

// In ucontext_t (x86_64 ABI of Linux and glibc): what it links to, its stack, its registers. So
// many bytes tell whether it is one.
constexpr std::uint64_t kContextLink = 8;
constexpr std::uint64_t kContextStack = 16, kContextStackSize = 32;
constexpr std::uint64_t kContextStackPointer = 160, kContextProgramCounter = 168;
constexpr std::uint64_t kContextBytes = 424;

// Whether memory that can be read is marked as a context: getcontext() lets each one point to its
// own floating-point state.
inline bool is_marked_context(std::uint64_t at) {
  constexpr std::uint64_t kVectors = 224, kOwnVectors = kContextBytes;
  std::uint64_t vectors;
  __builtin_memcpy(&vectors, reinterpret_cast<const void*>(at + kVectors), sizeof vectors);
  return vectors == at + kOwnVectors;
}

// The context in the frame of a signal that begins with this word at `at`, 0 if none does. It lies
// behind the address of the code that ends a handler: mov rax, 15; syscall.
// `read(address, buffer, bytes)` tells whether all of them could be read.
template <typename Read>
std::uint64_t context_of_frame(std::uint64_t at, std::uint64_t word, Read read) {
  constexpr unsigned char kEndOfHandler[9] = {0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05};
  unsigned char code[sizeof kEndOfHandler];
  bool is_frame =
      read(word, code, sizeof code) && __builtin_memcmp(code, kEndOfHandler, sizeof code) == 0;
  return is_frame ? at + sizeof word : 0;
}

// False if it cannot be read. This processor has none.
template <typename Read>
bool read_link_register(std::uint64_t, std::uint64_t& link, Read) {
  link = 0;
  return true;
}

}  // namespace reachscan::arch
