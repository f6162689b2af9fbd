// How the kernel lays out the memory of a process.
#pragma once

#include <sys/syscall.h>

#include <cstdint>

namespace reachscan::arch {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kHugePage = 2u << 20;
constexpr std::uint64_t kSmallestPage = kPage, kLargestPage = kPage;

// A word of the target. The processor also runs 32-bit programs, for which the sweeper has a form
// of its own. The conditionals below are the differences between the two ABIs.
#ifdef REACHSCAN_SHORT_WORDS
using Word = std::uint32_t;
#else
using Word = std::uint64_t;
#endif
constexpr unsigned kWord = sizeof(Word);

// Addresses of position-independent programs have this many bits, and none has more. (The kernel
// hands out 56-bit addresses, with five-level page tables, only on request.)
constexpr unsigned kAddressBits = 47;
// The last page below is never mapped.
constexpr std::uint64_t kUserEnd = (1ull << kAddressBits) - kPage;

// The kernel places the break of a program that was loaded where libraries are at or above this
// address (ELF_ET_DYN_BASE).
constexpr std::uint64_t kBreakOfLoader = ((1ull << kAddressBits) - kPage) / 3 * 2 & ~(kPage - 1);

// ABI red zone: a leaf function may keep data this far below its stack pointer.
constexpr std::uint64_t kRedZone = kWord == 8 ? 128 : 0;

// The alignment of the largest scalar type, and so what malloc() guarantees.
constexpr std::uint64_t kLargestAlignment = 16;

// The call that maps memory, and the unit of its offset in a file.
constexpr std::uint64_t kMapCall = SYS_mmap, kMapUnit = 1;

}  // namespace reachscan::arch
