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
constexpr bool kRecordEndsFrame = true;
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

inline std::uint64_t return_address_at(std::uint64_t address) { return word_at(address); }

// Returns whether an instruction of unwind tables only says that return addresses are signed: here
// they never are.
constexpr bool only_signs(std::uint8_t) { return false; }

// Where a function has saved what belongs to its caller, in distances below the end of its frame.
// Packed into kBits: distances count words, and those of all but the largest frames fit.
class FrameLayout {
 public:
  static constexpr unsigned kBits = 29;

  constexpr FrameLayout() = default;
  constexpr explicit FrameLayout(std::uint32_t bits) : bits_(bits) {}

  // `bytes`: from the register that the rule starts from to the end of the frame. A distance of 0:
  // still in its register. Returns false if such a layout cannot be packed.
  static constexpr bool make(std::int64_t bytes, std::int64_t return_address,
                             std::int64_t frame_pointer, FrameLayout& layout) {
    if (bytes < 0 || bytes % 8 != 0 || bytes / 8 > kLargestSize || frame_pointer < 0 ||
        frame_pointer % 8 != 0 || frame_pointer / 8 > kLargestSaved ||
        return_address != kReturnAddressBelowFrame)
      return false;
    layout.bits_ = static_cast<std::uint32_t>(frame_pointer / 8) |
                   static_cast<std::uint32_t>(bytes / 8) << kSavedBits;
    return true;
  }

  constexpr std::uint32_t bits() const { return bits_; }
  // In the highest bits, since unwinding waits for it.
  constexpr std::uint64_t bytes() const { return (bits_ >> kSavedBits) * std::uint64_t{8}; }
  constexpr std::uint64_t return_address() const { return kReturnAddressBelowFrame; }
  // 0: the function leaves it alone.
  constexpr std::uint64_t frame_pointer() const {
    return (bits_ & kLargestSaved) * std::uint64_t{8};
  }

 private:
  static constexpr unsigned kSavedBits = 8;
  static constexpr std::int64_t kLargestSize = (1 << (kBits - kSavedBits)) - 1;  // 16 MiB
  static constexpr std::int64_t kLargestSaved = (1 << kSavedBits) - 1;

  std::uint32_t bits_ = 0;
};

// Where the return address was found: always right below the caller's frame.
class ReturnSlot {
 public:
  ReturnSlot() = default;
  explicit ReturnSlot(std::uint64_t) {}

  std::uint64_t address(std::uint64_t caller_sp) const {
    return caller_sp - kReturnAddressBelowFrame;
  }
};

// Returns the frame of the caller of the function that this is inlined into.
[[gnu::always_inline]] inline Frame calling_frame() {
  auto at = reinterpret_cast<std::uint64_t>(__builtin_frame_address(0));
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

// Every return address is on the stack.
inline std::uint64_t interrupted_link(std::uint64_t) { return 0; }

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
