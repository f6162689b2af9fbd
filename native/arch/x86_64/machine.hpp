// Which programs this is the processor of.
#pragma once

#include <elf.h>

#include <cstdint>

namespace reachscan::arch {

constexpr std::uint16_t kElfMachine = EM_X86_64;
// Those with words of four bytes that it runs, too.
constexpr std::uint16_t kShortElfMachine = EM_386;
constexpr const char* kProgramKind = "a 64-bit x86 program";

}  // namespace reachscan::arch
