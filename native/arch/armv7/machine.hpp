// The programs that run on this processor.
#pragma once

#include <elf.h>

#include <cstdint>

namespace reachscan::arch {

// Programs with words of 64 bits: none.
constexpr std::uint16_t kElfMachine = EM_NONE;
constexpr std::uint16_t kShortElfMachine = EM_ARM;
using Header = Elf32_Ehdr;  // of what the kernel maps into its own kind of programs
constexpr const char* kProgramKind = "a 32-bit Arm program";

}  // namespace reachscan::arch
