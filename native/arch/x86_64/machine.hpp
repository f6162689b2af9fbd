// The programs that run on this processor.
#pragma once

#include <elf.h>

#include <cstdint>

namespace reachscan::arch {

constexpr std::uint16_t kElfMachine = EM_X86_64;
// 32-bit programs, which it runs, too.
constexpr std::uint16_t kShortElfMachine = EM_386;
using Header = Elf64_Ehdr;  // of what the kernel maps into its own kind of programs
constexpr const char* kProgramKind = "a 64-bit x86 program";

}  // namespace reachscan::arch
