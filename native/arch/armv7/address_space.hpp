// How the kernel lays out the memory of a process.
#pragma once

#include <sys/syscall.h>

#include <cstdint>

namespace reachscan::arch {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kHugePage = 2 << 20;  // of kernels with long page table entries (LPAE)

// A word of the target.
using Word = std::uint32_t;
constexpr unsigned kWord = sizeof(Word);

// What 64 bits must not exceed to hold an address, as for these programs on 64-bit kernels.
constexpr unsigned kAddressBits = 48;
// What is mapped there belongs to the kernel ([vectors]).
constexpr std::uint64_t kUserEnd = 0xffff0000;

// The kernel places the break of a program that was loaded where libraries are at or above this
// address (ELF_ET_DYN_BASE).
constexpr std::uint64_t kBreakOfLoader = 4 << 20;

// Nothing below the stack pointer is preserved (AAPCS).
constexpr std::uint64_t kRedZone = 0;

// The alignment of the largest scalar type, and so what malloc() guarantees.
constexpr std::uint64_t kLargestAlignment = 2 * kWord;

// The call that maps memory, and the unit of its offset in a file.
constexpr std::uint64_t kMapCall = SYS_mmap2, kMapUnit = 4096;

}  // namespace reachscan::arch
