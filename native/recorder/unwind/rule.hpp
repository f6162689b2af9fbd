// How to find the frame of a function's caller, for one return address.
#pragma once

#include <cstdint>

#include "arch/frames.hpp"

namespace reachscan::recorder {

enum class RuleKind : std::uint32_t {
  kUnknown = 0,  // not in any table: the stack ends here for us
  kEnd,          // the outermost function
  kFromSp,       // canonical frame address = stack pointer + offset
  kFromFp,       // ... = frame pointer + offset
  kSavedAtFp,    // ... = word at (frame pointer - offset): functions that realign their stack
  kGuess,        // like kFromFp, but not from a table: the next frame shows whether it was right
  kOwn,          // like kFromFp, but for a hook of the recorder: not a frame of the program
  kSignal,       // the code that returns from a signal handler: the kernel saved all registers
};

// Packed into 32 bits.
class Rule {
 public:
  constexpr Rule() = default;
  constexpr explicit Rule(RuleKind kind) : bits_(static_cast<std::uint32_t>(kind)) {}

  // How far below the canonical frame address the caller's frame pointer and the return address
  // were saved; 0 if they are still in their registers.
  static constexpr Rule make(RuleKind kind, std::int64_t offset, std::int64_t saved_fp,
                             std::int64_t return_address = arch::kReturnAddressBelowFrame) {
    arch::FrameLayout layout;
    if (!arch::FrameLayout::make(offset, return_address, saved_fp, layout))
      return Rule(RuleKind::kUnknown);
    Rule rule(kind);
    rule.bits_ |= layout.bits() << kKindBits;
    return rule;
  }

  static constexpr Rule from_bits(std::uint32_t bits) {
    Rule rule;
    rule.bits_ = bits;
    return rule;
  }

  constexpr std::uint32_t bits() const { return bits_; }
  constexpr RuleKind kind() const { return static_cast<RuleKind>(bits_ & ((1u << kKindBits) - 1)); }
  // Whether, for the same frame, the caller's frame follows from two words of the stack at the same
  // addresses; or there is no caller.
  constexpr bool is_simple() const {
    return kind() == RuleKind::kFromSp || kind() == RuleKind::kFromFp || kind() == RuleKind::kEnd ||
           kind() == RuleKind::kUnknown;
  }
  constexpr std::uint64_t offset() const { return layout().bytes(); }
  constexpr std::uint64_t saved_fp() const { return layout().frame_pointer(); }
  constexpr std::uint64_t return_address() const { return layout().return_address(); }

 private:
  static constexpr unsigned kKindBits = 32 - arch::FrameLayout::kBits;
  static_assert(kKindBits == 3);

  constexpr arch::FrameLayout layout() const { return arch::FrameLayout(bits_ >> kKindBits); }

  std::uint32_t bits_ = 0;
};

// The rule of functions that keep a frame pointer, where that tells the end of the frame.
constexpr Rule frame_pointer_rule(RuleKind kind) {
  return Rule::make(kind, arch::kSavedFramePointerBelowFrame, arch::kSavedFramePointerBelowFrame);
}

}  // namespace reachscan::recorder
