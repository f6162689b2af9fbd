// What is decoded of machine code, 64-bit and 32-bit alike.
#pragma once

#include <cstdint>

namespace reachscan::arch {

enum class Call {
  kNone,         // no call precedes that address
  kDirect,       // a call to a fixed target
  kThroughStub,  // a call to a stub that jumps through a slot: the slot's value is the target
  kElsewhere,    // a call to anywhere, through a register
};

struct SystemCall {
  bool made;
  bool known;  // whether its number is
  std::uint32_t number;
};

constexpr std::uint64_t kInstructionBytes = 4;  // of Thumb, half of that or as much

}  // namespace reachscan::arch
