// Single instructions that the sweeper needs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reachscan::arch {

// Stops the thread for its tracer, which sees a SIGTRAP: the kernel takes these undefined
// instructions for breakpoints.
inline void trap() {
#ifdef __thumb__
  asm volatile(".inst.n 0xde01" ::: "memory");
#else
  asm volatile(".inst 0xe7f001f0" ::: "memory");
#endif
}

// For loops that wait for another thread.
inline void relax() { asm volatile("yield" ::: "memory"); }

inline bool has_protection_keys() { return false; }
inline void open_protection_keys() {}

// Written so that the compiler does not recognise the loops and turn them into calls to memset()
// and memcpy().
inline void fill(void* target, int value, std::size_t length) {
  std::uint32_t bytes = static_cast<unsigned char>(value) * 0x01010101u;
  for (; length > 0 && reinterpret_cast<std::uintptr_t>(target) % 4 != 0; --length)
    asm volatile("strb %1, [%0], #1" : "+r"(target) : "r"(bytes) : "memory");
  for (; length >= 4; length -= 4)
    asm volatile("str %1, [%0], #4" : "+r"(target) : "r"(bytes) : "memory");
  for (; length > 0; --length)
    asm volatile("strb %1, [%0], #1" : "+r"(target) : "r"(bytes) : "memory");
}

// Single words may be at any address.
inline void copy_upwards(void* target, const void* source, std::size_t length) {
  std::uint32_t word;
  for (; length >= 4; length -= 4)
    asm volatile("ldr %2, [%1], #4\n\tstr %2, [%0], #4"
                 : "+r"(target), "+r"(source), "=&r"(word)
                 :
                 : "memory");
  for (; length > 0; --length)
    asm volatile("ldrb %2, [%1], #1\n\tstrb %2, [%0], #1"
                 : "+r"(target), "+r"(source), "=&r"(word)
                 :
                 : "memory");
}

}  // namespace reachscan::arch
