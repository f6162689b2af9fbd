// How the kernel lays out the memory of a process.
#pragma once

#include <cstdint>

namespace reachscan::arch {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kHugePage = 2u << 20;

// A word of the programs that are looked at. The processor runs 32-bit programs, too: for these the
// sweeper has a form of its own. What differs in what follows differs between the two ABIs.
#ifdef REACHSCAN_SHORT_WORDS
using Word = std::uint32_t;
#else
using Word = std::uint64_t;
#endif
constexpr unsigned kWord = sizeof(Word);

// Addresses of programs that are not at fixed places have this many bits, and none has more. (The
// kernel gives out addresses of 56 bits, five levels of page tables, only to who asks for them.)
constexpr unsigned kAddressBits = 47;
// The last page below is never mapped.
constexpr std::uint64_t kUserEnd = (1ull << kAddressBits) - kPage;

// From here on the kernel looks for a place for the break of a program that lies where libraries do
// (ELF_ET_DYN_BASE).
constexpr std::uint64_t kBreakOfLoader = ((1ull << kAddressBits) - kPage) / 3 * 2 & ~(kPage - 1);

// ABI red zone: a leaf function may keep data this far below its stack pointer.
constexpr std::uint64_t kRedZone = kWord == 8 ? 128 : 0;

}  // namespace reachscan::arch
