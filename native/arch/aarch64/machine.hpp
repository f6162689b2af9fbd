// Which programs this is the processor of.
#pragma once

#include <elf.h>

#include <cstdint>

namespace reachscan::arch {

constexpr std::uint16_t kElfMachine = EM_AARCH64;
// Those with words of four bytes are not known yet.
constexpr std::uint16_t kShortElfMachine = EM_NONE;
constexpr const char* kProgramKind = "a 64-bit Arm program";

}  // namespace reachscan::arch
