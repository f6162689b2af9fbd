// How the kernel lays out the memory of a process.
#pragma once

#include <sys/syscall.h>

#include <cstdint>

#ifdef REACHSCAN_ANY_PAGES
#include <unistd.h>
#endif

namespace reachscan::arch {

// Kernels have pages of 4, 16 or 64 KiB. The helper asks; the sweeper is built for each. Weak:
// Clang 22 computes other constants from such a variable while it is still 0, unless another
// definition might replace it.
#ifdef REACHSCAN_ANY_PAGES
[[gnu::weak]] inline const auto kPage = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
#else
#ifndef REACHSCAN_PAGE_KIB
#define REACHSCAN_PAGE_KIB 4
#endif
constexpr std::uint64_t kPage = REACHSCAN_PAGE_KIB << 10;
#endif
#ifdef REACHSCAN_ANY_PAGES
[[gnu::weak]]
#endif
inline const std::uint64_t kHugePage = kPage * (kPage / 8);

// What fits kernels with the smallest pages, and with the largest.
constexpr std::uint64_t kSmallestPage = 4 << 10;
constexpr std::uint64_t kLargestPage = 64 << 10;

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
// A stack that is not placed at random ends there.
constexpr std::uint64_t kUserEnd = 1ull << kAddressBits;

// The kernel places the break of a program that was loaded where libraries are at or above this
// address (ELF_ET_DYN_BASE).
constexpr std::uint64_t kBreakOfLoader = (1ull << kAddressBits) / 3 * 2 & ~((64ull << 10) - 1);

// Nothing below the stack pointer is preserved (AAPCS).
constexpr std::uint64_t kRedZone = 0;

// The alignment of the largest scalar type, and so what malloc() guarantees.
constexpr std::uint64_t kLargestAlignment = 2 * kWord;

// The call that maps memory, and the unit of its offset in a file.
constexpr std::uint64_t kMapCall = SYS_mmap, kMapUnit = 1;

}  // namespace reachscan::arch
