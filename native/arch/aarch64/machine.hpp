// The programs that run on this processor.
#pragma once

#include <elf.h>

#include <cstdint>

namespace reachscan::arch {

constexpr std::uint16_t kElfMachine = EM_AARCH64;
// 32-bit programs, which most of these processors run, too.
constexpr std::uint16_t kShortElfMachine = EM_ARM;
using Header = Elf64_Ehdr;  // of what the kernel maps into its own kind of programs
constexpr const char* kProgramKind = "a 64-bit Arm program";

}  // namespace reachscan::arch
