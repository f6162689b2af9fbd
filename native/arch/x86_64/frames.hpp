// Frames of functions: what an unwinder must know of the processor.
#pragma once

#include <cstdint>

#include "arch/signal_frame.hpp"

namespace reachscan::arch {

// Their numbers in unwind tables (System V ABI, DWARF register numbers).
constexpr std::uint64_t kDwarfFramePointer = 6;
constexpr std::uint64_t kDwarfStackPointer = 7;
constexpr std::uint64_t kDwarfReturnAddress = 16;

// Below the canonical frame address lies the return address; a function that keeps a frame pointer
// saves the caller's below that.
constexpr std::int64_t kReturnAddressBelowFrame = 8;
constexpr std::int64_t kSavedFramePointerBelowFrame = 16;

struct Frame {
  std::uint64_t pc;  // where the function goes on: a return address
  std::uint64_t sp;
  std::uint64_t fp;
};

inline std::uint64_t word_at(std::uint64_t address) {
  std::uint64_t word;
  __builtin_memcpy(&word, reinterpret_cast<const void*>(address), sizeof word);
  return word;
}

// The frame of the caller of the function whose __builtin_frame_address(0) is given.
inline Frame calling_frame(const void* frame_address) {
  auto at = reinterpret_cast<std::uint64_t>(frame_address);
  return {word_at(at + 8), at + 16, word_at(at)};
}

// What a signal interrupted. `sp` is the stack pointer when the handler has returned to the code
// that ends it. The interrupted instruction is no call: the address behind its first byte stands
// for it, as a return address stands for the byte before it.
inline Frame interrupted_frame(std::uint64_t sp) {
  constexpr std::uint64_t kFramePointer = 120;
  return {word_at(sp + Context<8>::kProgramCounter) + 1, word_at(sp + Context<8>::kStackPointer),
          word_at(sp + kFramePointer)};
}

// Whether this code ends a signal handler (mov rax, 15; syscall). Not all C libraries describe
// theirs in unwind tables.
inline bool ends_handler(std::uint64_t pc) {
  constexpr unsigned char kCode[] = {0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05};
  return __builtin_memcmp(reinterpret_cast<const void*>(pc), kCode, sizeof kCode) == 0;
}

inline std::uint64_t thread_pointer() {
  std::uint64_t pointer;
  asm("mov %%fs:0, %0" : "=r"(pointer));
  return pointer;
}

}  // namespace reachscan::arch
