// Stack frames: what an unwinder must know about the processor.
#pragma once

#include <cstdint>

#include "arch/signal_frame.hpp"

namespace reachscan::arch {

// Register numbers in unwind tables (System V ABI, DWARF).
constexpr std::uint64_t kDwarfFramePointer = 6;
constexpr std::uint64_t kDwarfStackPointer = 7;
constexpr std::uint64_t kDwarfReturnAddress = 16;

// The return address is right below the canonical frame address. A function with a frame pointer
// saves the caller's right below that.
constexpr std::int64_t kReturnAddressBelowFrame = 8;
constexpr std::int64_t kSavedFramePointerBelowFrame = 16;

struct Frame {
  std::uint64_t pc;  // a return address: where the function resumes
  std::uint64_t sp;
  std::uint64_t fp;
};

inline std::uint64_t word_at(std::uint64_t address) {
  std::uint64_t word;
  __builtin_memcpy(&word, reinterpret_cast<const void*>(address), sizeof word);
  return word;
}

// Returns the frame of the caller of the function whose __builtin_frame_address(0) is given.
inline Frame calling_frame(const void* frame_address) {
  auto at = reinterpret_cast<std::uint64_t>(frame_address);
  return {word_at(at + 8), at + 16, word_at(at)};
}

// Returns the frame that a signal interrupted. `sp` is the stack pointer after the handler has
// returned to the code that calls sigreturn. The interrupted instruction is not a call, so the
// address after its first byte serves as the pc, as a return address stands for the byte before it.
inline Frame interrupted_frame(std::uint64_t sp) {
  constexpr std::uint64_t kFramePointer = 120;
  return {word_at(sp + Context<8>::kProgramCounter) + 1, word_at(sp + Context<8>::kStackPointer),
          word_at(sp + kFramePointer)};
}

// Returns whether this code returns from a signal handler (mov rax, 15; syscall). Not all C
// libraries describe theirs in unwind tables.
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
