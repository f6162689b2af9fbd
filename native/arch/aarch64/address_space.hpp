// How the kernel lays out the memory of a process.
#pragma once

#include <cstdint>

namespace reachscan::arch {

// As in the kernels of most distributions. Kernels with pages of 16 or 64 KiB are refused.
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kHugePage = 2u << 20;

// A word of the target. The processor also runs 32-bit programs, for which the sweeper has a form
// of its own.
#ifdef REACHSCAN_SHORT_WORDS
using Word = std::uint32_t;
#else
using Word = std::uint64_t;
#endif
constexpr unsigned kWord = sizeof(Word);

// Addresses of programs and libraries have bit 47 set, since the kernel has an address space of its
// own. (With 52 bits, the kernel hands out addresses of more than 48 only on request.)
constexpr unsigned kAddressBits = 48;
// The last page below is never mapped.
constexpr std::uint64_t kUserEnd = (1ull << kAddressBits) - kPage;

// The kernel places the break of a program that was loaded where libraries are at or above this
// address (ELF_ET_DYN_BASE).
constexpr std::uint64_t kBreakOfLoader = (1ull << kAddressBits) / 3 * 2 & ~(kPage - 1);

// Nothing below the stack pointer is preserved (AAPCS).
constexpr std::uint64_t kRedZone = 0;

// The alignment of the largest scalar type, and so what malloc() guarantees.
constexpr std::uint64_t kLargestAlignment = 2 * kWord;

}  // namespace reachscan::arch
