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

// Packed into 32 bits: offsets count words, and those of all but the largest frames fit.
class Rule {
 public:
  constexpr Rule() = default;
  constexpr explicit Rule(RuleKind kind) : bits_(static_cast<std::uint32_t>(kind)) {}

  // `saved_fp` is how far below the canonical frame address the caller's frame pointer was saved; 0
  // if the function leaves it alone.
  static constexpr Rule make(RuleKind kind, std::int64_t offset, std::int64_t saved_fp) {
    bool fits = offset >= 0 && offset % 8 == 0 && offset / 8 <= kLargestOffset && saved_fp >= 0 &&
                saved_fp % 8 == 0 && saved_fp / 8 <= kLargestSaved;
    if (!fits) return Rule(RuleKind::kUnknown);
    Rule rule(kind);
    rule.bits_ |= static_cast<std::uint32_t>(saved_fp / 8) << kKindBits;
    rule.bits_ |= static_cast<std::uint32_t>(offset / 8) << (kKindBits + kSavedBits);
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
  // In the highest bits, since unwinding waits for it.
  constexpr std::uint64_t offset() const {
    return (bits_ >> (kKindBits + kSavedBits)) * std::uint64_t{8};
  }
  constexpr std::uint64_t saved_fp() const {
    return (bits_ >> kKindBits & kLargestSaved) * std::uint64_t{8};
  }

 private:
  static constexpr unsigned kKindBits = 3, kOffsetBits = 21, kSavedBits = 8;
  static constexpr std::int64_t kLargestOffset = (1 << kOffsetBits) - 1;  // frames of 16 MiB
  static constexpr std::int64_t kLargestSaved = (1 << kSavedBits) - 1;

  std::uint32_t bits_ = 0;
};

// The rule of functions that keep a frame pointer.
constexpr Rule frame_pointer_rule(RuleKind kind) {
  return Rule::make(kind, arch::kSavedFramePointerBelowFrame, arch::kSavedFramePointerBelowFrame);
}

}  // namespace reachscan::recorder
