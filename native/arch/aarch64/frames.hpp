// Stack frames: what an unwinder must know about the processor.
#pragma once

#include <cstdint>

#include "arch/aarch64/address_space.hpp"
#include "arch/arm/signal_frame.hpp"

namespace reachscan::arch {

// Register numbers in unwind tables (DWARF for AArch64).
constexpr std::uint64_t kDwarfFramePointer = 29;
constexpr std::uint64_t kDwarfReturnAddress = 30;
constexpr std::uint64_t kDwarfStackPointer = 31;

// The frame pointer leads to a frame record: the caller's frame pointer, the return address. It may
// be anywhere in the frame, so it does not tell where the frame ends.
constexpr bool kRecordEndsFrame = false;
constexpr std::int64_t kReturnAddressBelowFrame = 8;  // below the end of the record
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

// A function may sign its return address before it saves it (PAC): in bits that addresses of
// programs do not have.
constexpr std::uint64_t without_signature(std::uint64_t code) { return code & (kUserEnd - 1); }

inline std::uint64_t return_address_at(std::uint64_t address) {
  return without_signature(word_at(address));
}

// Returns whether an instruction of unwind tables only says that return addresses are signed from
// there on (DW_CFA_AARCH64_negate_ra_state, and the same with_pc).
constexpr bool only_signs(std::uint8_t instruction) {
  return instruction == 0x2d || instruction == 0x2c;
}

// Where a function has saved what belongs to its caller, in distances below the end of its frame.
// Packed into kBits: the size of the frame counts 16 bytes, which the stack is aligned to.
// Compilers save registers near one end of the frame, and these two next to each other.
class FrameLayout {
 public:
  static constexpr unsigned kBits = 29;

  constexpr FrameLayout() = default;
  constexpr explicit FrameLayout(std::uint32_t bits) : bits_(bits) {}

  // `bytes`: from the register that the rule starts from to the end of the frame. A distance of 0:
  // still in its register. Returns false if such a layout cannot be packed.
  static constexpr bool make(std::int64_t bytes, std::int64_t return_address,
                             std::int64_t frame_pointer, FrameLayout& layout) {
    std::uint32_t pair = pair_of(return_address, frame_pointer);
    if (bytes < 0 || bytes % kUnit != 0 || bytes / kUnit > kLargestSize || return_address < 0 ||
        return_address % 8 != 0 || pair > kAbove)
      return false;
    bool is_near_end = return_address <= kFarthest;
    std::int64_t place = is_near_end ? return_address : bytes - return_address + 8;
    if (place < 0 || place > kFarthest || (return_address != 0 && place == 0)) return false;
    layout.bits_ = (is_near_end ? 0 : 1u) | pair << 1 | static_cast<std::uint32_t>(place / 8) << 3 |
                   static_cast<std::uint32_t>(bytes / kUnit) << kSizeShift;
    return true;
  }

  constexpr std::uint32_t bits() const { return bits_; }
  constexpr std::uint64_t bytes() const { return (bits_ >> kSizeShift) * std::uint64_t{kUnit}; }

  // 0: in the link register.
  constexpr std::uint64_t return_address() const {
    std::uint64_t place = (bits_ >> 3 & kPlaceMask) * std::uint64_t{8};
    return (bits_ & 1) == 0 ? place : bytes() - place + 8;
  }

  // 0: the function leaves it alone.
  constexpr std::uint64_t frame_pointer() const {
    std::uint32_t pair = bits_ >> 1 & 3;
    return pair == kAlone ? 0 : return_address() + (pair == kBelow ? 8 : -std::uint64_t{8});
  }

 private:
  // Where the frame pointer is saved, as seen from the return address.
  enum : std::uint32_t { kAlone, kBelow, kAbove, kElsewhere };

  static constexpr std::int64_t kUnit = 16;
  static constexpr std::uint32_t kPlaceMask = 0x7f;
  static constexpr std::int64_t kFarthest = kPlaceMask * 8;
  static constexpr unsigned kSizeShift = 10;
  static constexpr std::int64_t kLargestSize = (1 << (kBits - kSizeShift)) - 1;  // 8 MiB

  static constexpr std::uint32_t pair_of(std::int64_t return_address, std::int64_t frame_pointer) {
    if (frame_pointer == 0) return kAlone;
    if (return_address == 0) return kElsewhere;
    if (frame_pointer == return_address + 8) return kBelow;
    return frame_pointer == return_address - 8 ? kAbove : kElsewhere;
  }

  std::uint32_t bits_ = 0;
};

// Where the return address was found: so far below the caller's frame.
class ReturnSlot {
 public:
  ReturnSlot() = default;
  explicit ReturnSlot(std::uint64_t below) : below_(static_cast<std::uint32_t>(below)) {}

  std::uint64_t address(std::uint64_t caller_sp) const { return caller_sp - below_; }

 private:
  std::uint32_t below_ = 0;
};

// Returns the frame of the caller of the function that this is inlined into.
[[gnu::always_inline]] inline Frame calling_frame() {
  auto record = reinterpret_cast<std::uint64_t>(__builtin_frame_address(0));
  return {return_address_at(record + 8), reinterpret_cast<std::uint64_t>(__builtin_dwarf_cfa()),
          word_at(record)};
}

// The siginfo_t that precedes the context in a signal frame.
constexpr std::uint64_t kBytesBeforeContext = 128;

// Returns the frame that a signal interrupted. `sp` is the stack pointer after the handler has
// returned to the code that calls sigreturn. The interrupted instruction is not a call, so the
// address after its first byte serves as the pc, as a return address stands for the byte before it.
inline Frame interrupted_frame(std::uint64_t sp) {
  std::uint64_t context = sp + kBytesBeforeContext;
  constexpr std::uint64_t kFramePointer = Context<8>::kLinkRegister - 8;
  return {word_at(context + Context<8>::kProgramCounter) + 1,
          word_at(context + Context<8>::kStackPointer), word_at(context + kFramePointer)};
}

// Returns the return address of that frame if its function has not saved it.
inline std::uint64_t interrupted_link(std::uint64_t sp) {
  return return_address_at(sp + kBytesBeforeContext + Context<8>::kLinkRegister);
}

// Returns whether this code returns from a signal handler (mov x8, 139; svc 0). Kernels differ in
// whether their tables describe theirs, and how.
inline bool ends_handler(std::uint64_t pc) {
  constexpr std::uint32_t kCode[] = {0xd2801168, 0xd4000001};
  return __builtin_memcmp(reinterpret_cast<const void*>(pc), kCode, sizeof kCode) == 0;
}

inline std::uint64_t thread_pointer() {
  std::uint64_t pointer;
  asm("mrs %0, tpidr_el0" : "=r"(pointer));
  return pointer;
}

}  // namespace reachscan::arch
