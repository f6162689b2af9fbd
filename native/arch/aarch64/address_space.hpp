// How the kernel lays out the memory of a process.
#pragma once

#include <cstdint>

namespace reachscan::arch {

// Of the kernels that most distributions build. Others have 16 or 64 KiB, and are refused.
constexpr std::uint64_t kPage = 4096;
using Word = std::uint64_t;  // of the programs that are looked at
constexpr unsigned kWord = sizeof(Word);
constexpr std::uint64_t kHugePage = 2u << 20;

// Addresses of programs and libraries have bit 47 set: kernels have addresses of their own. (Of 52
// bits, the kernel gives out those with more than 48 only to who asks for them.)
constexpr unsigned kAddressBits = 48;
// The last page below is never mapped.
constexpr std::uint64_t kUserEnd = (1ull << kAddressBits) - kPage;

// From here on the kernel looks for a place for the break of a program that lies where libraries do
// (ELF_ET_DYN_BASE).
constexpr std::uint64_t kBreakOfLoader = (1ull << kAddressBits) / 3 * 2 & ~(kPage - 1);

// Nothing below the stack pointer is kept (AAPCS64).
constexpr std::uint64_t kRedZone = 0;

}  // namespace reachscan::arch
