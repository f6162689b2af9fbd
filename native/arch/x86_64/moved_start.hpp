// The start of a function, moved elsewhere to make room for a jump in its place.
#pragma once

#include <optional>
#include <vector>

#include "arch/imports.hpp"
#include "arch/instruction.hpp"

namespace reachscan::arch {

// Distances count from the end of these four bytes. Returns false if the target is out of reach.
inline bool append_distance(std::vector<unsigned char>& code, std::uint64_t at,
                            std::uint64_t target) {
  auto distance = static_cast<std::int64_t>(target - (at + code.size() + sizeof(std::int32_t)));
  if (distance != static_cast<std::int32_t>(distance)) return false;
  const auto* bytes = reinterpret_cast<const unsigned char*>(&distance);
  code.insert(code.end(), bytes, bytes + sizeof(std::int32_t));
  return true;
}

inline bool append_jump(std::vector<unsigned char>& code, std::uint64_t at, std::uint64_t target) {
  code.push_back(0xe9);
  return append_distance(code, at, target);
}

class MovedStart {
 public:
  // Returns the code of the function of `bytes` bytes at `from`, relocated to `to`. Returns nothing
  // if it cannot be decoded, or if it jumps back to its first bytes.
  static std::optional<std::vector<unsigned char>> make(const unsigned char* function,
                                                        std::size_t bytes, std::uint64_t from,
                                                        std::uint64_t to) {
    MovedStart moved{function, bytes, from, to};
    if (!moved.move() || moved.leads_back()) return std::nullopt;
    return moved.code_;
  }

 private:
  MovedStart(const unsigned char* function, std::size_t bytes, std::uint64_t from, std::uint64_t to)
      : function_(function), bytes_(bytes), from_(from), to_(to) {}

  bool move() {
    Flow flow = Flow::kOn;
    while (moved_ < kJumpBytes && flow != Flow::kJump && flow != Flow::kAway) {
      Instruction instruction = InstructionReader(function_ + moved_, bytes_ - moved_).read();
      if (instruction.length == 0 || !append(instruction)) return false;
      moved_ += instruction.length;
      flow = instruction.flow;
    }
    if (moved_ < kJumpBytes) return false;  // another function may follow
    return flow == Flow::kJump || flow == Flow::kAway || append_jump(code_, to_, from_ + moved_);
  }

  bool append(const Instruction& instruction) {
    const unsigned char* code = function_ + moved_;
    std::uint64_t target =
        from_ + moved_ + instruction.length + static_cast<std::uint64_t>(instruction.distance);
    switch (instruction.flow) {
      case Flow::kCall:
      case Flow::kShortBranch:
        return false;
      case Flow::kJump:
        return append_jump(code_, to_, target);
      case Flow::kBranch:
        code_.push_back(0x0f);
        code_.push_back(0x80 | instruction.condition);
        return append_distance(code_, to_, target);
      default:
        break;
    }
    if (instruction.distance_at == 0) {
      code_.insert(code_.end(), code, code + instruction.length);
      return true;
    }
    // A distance counts from the end of the instruction, so the bytes after it matter.
    std::size_t behind = instruction.length - instruction.distance_at - sizeof(std::int32_t);
    code_.insert(code_.end(), code, code + instruction.distance_at);
    if (!append_distance(code_, to_, target - behind)) return false;
    code_.insert(code_.end(), code + instruction.length - behind, code + instruction.length);
    return true;
  }

  // Returns whether any instruction jumps into the overwritten bytes; true if that cannot be
  // determined.
  bool leads_back() const {
    for (std::size_t at = 0; at < bytes_;) {
      Instruction instruction = InstructionReader(function_ + at, bytes_ - at).read();
      if (instruction.length == 0) return true;
      at += instruction.length;
      bool jumps = instruction.flow == Flow::kJump || instruction.flow == Flow::kBranch ||
                   instruction.flow == Flow::kShortBranch;
      if (jumps && at + static_cast<std::uint64_t>(instruction.distance) < kJumpBytes) return true;
    }
    return false;
  }

  const unsigned char* function_;
  std::size_t bytes_;
  std::uint64_t from_;
  std::uint64_t to_;
  std::size_t moved_ = 0;
  std::vector<unsigned char> code_;
};

}  // namespace reachscan::arch
