// The code in trampoline.S: its parts and what is written into it.
#pragma once

#include "arch/registers.hpp"

namespace reachscan::arch {

extern "C" const unsigned char reachscan_trampoline[];
extern "C" const unsigned char reachscan_trampoline_reap[];
extern "C" const unsigned char reachscan_trampoline_literals[];
extern "C" const unsigned char reachscan_trampoline_end[];

// The literals after the trampoline's code, in the order of trampoline.S.
struct TrampolineLiterals {
  std::uint64_t all_signals;
  std::uint64_t own_signals;
  std::uint32_t middleman_flags;
  std::uint32_t flags, r0, r1, r2, r3, r4, r7, pc, unused;
};

// How far below the stack pointer the kernel writes a word for the trampoline.
constexpr std::uint64_t kStackWordDistance = 64;

// Returns whether the jump at its end can reach the thread's program counter from this address.
inline bool leads_back(std::uint64_t, const Registers&) { return true; }

// Returns the literals for a trampoline at this address.
inline TrampolineLiterals trampoline_literals(std::uint64_t, const Registers& r,
                                              std::uint64_t own_signals,
                                              std::uint64_t middleman_flags) {
  std::uint32_t state = (r.cpsr & kThumbState) != 0 ? static_cast<std::uint32_t>(kThumb) : 0;
  auto flags = static_cast<std::uint32_t>(middleman_flags);
  return {~0ull,  own_signals, flags,  r.cpsr, r.r[0],       r.r[1],
          r.r[2], r.r[3],      r.r[4], r.r[7], r.pc | state, 0};
}

// Makes a thread that has just created the middleman, which is dead by now, resume by reaping it.
inline void resume_to_reap(Registers& r, std::uint64_t trampoline) {
  r.r[4] = r.r[0];
  r.pc = static_cast<std::uint32_t>(trampoline) +
         static_cast<std::uint32_t>(reachscan_trampoline_reap - reachscan_trampoline);
}

// Offset in the trampoline of the signal mask that a thread leaves it with.
inline std::uint64_t own_signals_offset() {
  return static_cast<std::uint64_t>(reachscan_trampoline_literals - reachscan_trampoline) +
         offsetof(TrampolineLiterals, own_signals);
}

}  // namespace reachscan::arch
