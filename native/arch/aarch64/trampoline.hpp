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
  std::uint32_t back, unused;
  std::uint64_t all_signals;
  std::uint64_t own_signals;
  std::uint64_t middleman_flags;
  std::uint64_t x0, x1, x2, x3, x4, x8;
};

// How far below the stack pointer the kernel writes a word for the trampoline.
constexpr std::uint64_t kStackWordDistance = 64;

inline std::uint64_t branch_back_offset() {
  return static_cast<std::uint64_t>(reachscan_trampoline_literals - reachscan_trampoline);
}

// Returns whether the branch at its end can reach the thread's program counter from this address.
inline bool leads_back(std::uint64_t trampoline, const Registers& r) {
  constexpr std::uint64_t kReach = 128u << 20;  // bytes, in both directions
  return r.pc - (trampoline + branch_back_offset()) + kReach < 2 * kReach;
}

// Returns the literals for a trampoline at this address.
inline TrampolineLiterals trampoline_literals(std::uint64_t trampoline, const Registers& r,
                                              std::uint64_t own_signals,
                                              std::uint64_t middleman_flags) {
  std::uint64_t distance = r.pc - (trampoline + branch_back_offset());
  auto branch = 0x14000000u | (static_cast<std::uint32_t>(distance >> 2) & 0x3ffffff);
  return {branch, 0,      ~0ull,  own_signals, middleman_flags, r.x[0],
          r.x[1], r.x[2], r.x[3], r.x[4],      r.x[8]};
}

// Makes a thread that has just created the middleman, which is dead by now, resume by reaping it.
inline void resume_to_reap(Registers& r, std::uint64_t trampoline) {
  r.x[4] = r.x[0];
  r.pc = trampoline + static_cast<std::uint64_t>(reachscan_trampoline_reap - reachscan_trampoline);
}

// Offset in the trampoline of the signal mask that a thread leaves it with.
inline std::uint64_t own_signals_offset() {
  return branch_back_offset() + offsetof(TrampolineLiterals, own_signals);
}

}  // namespace reachscan::arch
