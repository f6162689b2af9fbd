// The start of a function, moved elsewhere to make room for a jump in its place.
#pragma once

#include <optional>
#include <vector>

#include "arch/aarch64/imports.hpp"

namespace reachscan::arch {

enum class Flow {
  kOn,         // to the next instruction, wherever the instruction is
  kAddress,    // the same; it computes an address near it (adr, adrp)
  kJump,       // unconditional
  kBranch,     // conditional, reaches 1 MiB
  kTestedBit,  // conditional, reaches 32 KiB
  kAway,       // leaves, but not by a distance: a return, a jump through a register
  kUnknown,    // a call, which would return; or not known to work elsewhere
};

constexpr Flow flow_of_branch(std::uint32_t code) {
  if ((code & 0xfc000000) == 0x14000000) return Flow::kJump;
  if ((code & 0x7e000000) == 0x36000000) return Flow::kTestedBit;            // tbz, tbnz
  if ((code & 0x7e000000) == 0x34000000) return Flow::kBranch;               // cbz, cbnz
  if ((code & 0xff000000) == 0x54000000) return Flow::kBranch;               // b.cond
  if ((code & 0xfe000000) == 0xd6000000)                                     // br, ret
    return (code >> 21 & 7) == 1 ? Flow::kUnknown : Flow::kAway;             // blr
  if ((code & 0xff000000) == 0xd4000000) return Flow::kOn;                   // svc, brk
  bool is_system = (code & 0xff000000) == 0xd5000000 && code != 0xd50324ff;  // pacm
  return is_system ? Flow::kOn : Flow::kUnknown;
}

constexpr Flow flow_of(std::uint32_t code) {
  if ((code & 0x1c000000) == 0x14000000) return flow_of_branch(code);
  bool is_reserved = (code & 0x1c000000) == 0 || (code & 0x1e000000) == 0x06000000;
  bool is_literal = (code & 0x3b000000) == 0x18000000;  // ldr from near the instruction
  // Signatures that depend on the instruction's own address (FEAT_PAuth_LR).
  bool signs_by_place = (code & 0xffff8000) == 0xdac18000 || (code & 0xff800000) == 0xf3800000;
  if (is_reserved || is_literal || signs_by_place) return Flow::kUnknown;
  return (code & 0x1f000000) == 0x10000000 ? Flow::kAddress : Flow::kOn;
}

// Returns the field of `bits` bits from bit `shift` as a signed number.
constexpr std::uint64_t signed_field(std::uint32_t code, unsigned shift, unsigned bits) {
  auto upper = std::uint64_t{code} << (64 - shift - bits);
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(upper) >> (64 - bits));
}

constexpr std::uint64_t target_of(std::uint32_t code, Flow flow, std::uint64_t at) {
  if (flow == Flow::kJump) return at + signed_field(code, 0, 26) * kInstructionBytes;
  return at + signed_field(code, 5, flow == Flow::kTestedBit ? 14 : 19) * kInstructionBytes;
}

class MovedStart {
 public:
  // Returns the code of the function of `bytes` bytes at `from`, relocated to `to`. Returns nothing
  // if it is not known to work there, or if it jumps back to its first instructions.
  static std::optional<std::vector<unsigned char>> make(const unsigned char* function,
                                                        std::size_t bytes, std::uint64_t from,
                                                        std::uint64_t to) {
    MovedStart moved{function, bytes, from, to};
    if (!moved.move() || moved.leads_back()) return std::nullopt;
    return moved.code_;
  }

 private:
  MovedStart(const unsigned char* function, std::size_t bytes, std::uint64_t from, std::uint64_t to)
      : function_(function),
        bytes_(bytes / kInstructionBytes * kInstructionBytes),
        from_(from),
        to_(to) {}

  std::uint32_t code_at(std::size_t offset) const {
    std::uint32_t code;
    std::memcpy(&code, function_ + offset, sizeof code);
    return code;
  }

  std::size_t overwritten() const { return start_bytes(code_at(0)); }

  bool move() {
    if (bytes_ == 0 || bytes_ < overwritten()) return false;  // another function may follow
    std::size_t moved = 0;
    for (; moved < overwritten(); moved += kInstructionBytes) {
      std::uint32_t code = code_at(moved);
      Flow flow = flow_of(code);
      if (!append(code, flow, from_ + moved)) return false;
      if (flow == Flow::kJump || flow == Flow::kAway) return true;
    }
    return append_jump(from_ + moved);
  }

  bool append(std::uint32_t code, Flow flow, std::uint64_t at) {
    switch (flow) {
      case Flow::kUnknown:
        return false;
      case Flow::kAddress:
        return append_address(code, at);
      case Flow::kJump:
        return append_jump(target_of(code, flow, at));
      case Flow::kBranch:
      case Flow::kTestedBit:
        return append_branch(code, flow, target_of(code, flow, at));
      default:
        return append_code(code);
    }
  }

  bool append_code(std::uint32_t code) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(&code);
    code_.insert(code_.end(), bytes, bytes + sizeof code);
    return true;
  }

  // Returns false if the target is out of reach.
  bool append_jump(std::uint64_t target) {
    std::uint64_t at = to_ + code_.size();
    return target - at + kJumpReach < 2 * kJumpReach && append_code(jump(at, target));
  }

  // A branch to a jump further on, and one over it.
  bool append_branch(std::uint32_t code, Flow flow, std::uint64_t target) {
    constexpr std::uint32_t kTwoFurther = 2;
    std::uint32_t distance = (flow == Flow::kTestedBit ? 0x3fffu : 0x7ffffu) << 5;
    append_code((code & ~distance) | kTwoFurther << 5);
    append_code(0x14000000 | kTwoFurther);
    return append_jump(target);
  }

  // The address as a constant: movz, movk.
  bool append_address(std::uint32_t code, std::uint64_t at) {
    std::uint64_t distance = signed_field(code, 5, 19) << 2 | (code >> 29 & 3);
    bool counts_pages = (code & 0x80000000) != 0;
    std::uint64_t address = counts_pages ? (at & ~0xfffull) + (distance << 12) : at + distance;
    for (std::uint32_t part = 0; part < 4; ++part) {
      auto bits = static_cast<std::uint32_t>(address >> 16 * part & 0xffff);
      append_code((part == 0 ? 0xd2800000 : 0xf2800000) | part << 21 | bits << 5 | (code & 31));
    }
    return true;
  }

  // Returns whether any instruction jumps into the overwritten bytes; true if that cannot be
  // determined.
  bool leads_back() const {
    for (std::size_t at = 0; at < bytes_; at += kInstructionBytes) {
      std::uint32_t code = code_at(at);
      Flow flow = flow_of(code);
      bool is_call = (code & 0xfc000000) == 0x94000000 || (code & 0xfee00000) == 0xd6200000;
      bool is_branch = (code & 0x1c000000) == 0x14000000;
      if (flow == Flow::kUnknown && is_branch && !is_call) return true;
      bool jumps = flow == Flow::kJump || flow == Flow::kBranch || flow == Flow::kTestedBit;
      if (jumps && target_of(code, flow, at) < overwritten()) return true;
    }
    return false;
  }

  const unsigned char* function_;
  std::size_t bytes_;
  std::uint64_t from_;
  std::uint64_t to_;
  std::vector<unsigned char> code_;
};

}  // namespace reachscan::arch
