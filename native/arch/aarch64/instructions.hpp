// Single instructions that the sweeper needs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reachscan::arch {

// Stops the thread for its tracer, which sees a SIGTRAP.
inline void trap() { asm volatile("brk #0" ::: "memory"); }

// For loops that wait for another thread.
inline void relax() { asm volatile("yield" ::: "memory"); }

// Permission overlays (POR_EL0) were not tried: what they close counts as memory that cannot be
// read.
inline bool has_protection_keys() { return false; }
inline void open_protection_keys() {}

// Written so that the compiler does not recognise the loops and turn them into calls to memset()
// and memcpy().
inline void fill(void* target, int value, std::size_t length) {
  std::uint64_t bytes = static_cast<unsigned char>(value) * 0x0101010101010101ull;
  for (; length >= 16; length -= 16)
    asm volatile("stp %1, %1, [%0], #16" : "+r"(target) : "r"(bytes) : "memory");
  for (; length > 0; --length)
    asm volatile("strb %w1, [%0], #1" : "+r"(target) : "r"(bytes) : "memory");
}

inline void copy_upwards(void* target, const void* source, std::size_t length) {
  std::uint64_t first, second;
  for (; length >= 16; length -= 16)
    asm volatile("ldp %2, %3, [%1], #16\n\tstp %2, %3, [%0], #16"
                 : "+r"(target), "+r"(source), "=&r"(first), "=&r"(second)
                 :
                 : "memory");
  for (; length > 0; --length)
    asm volatile("ldrb %w2, [%1], #1\n\tstrb %w2, [%0], #1"
                 : "+r"(target), "+r"(source), "=&r"(first)
                 :
                 : "memory");
}

}  // namespace reachscan::arch
