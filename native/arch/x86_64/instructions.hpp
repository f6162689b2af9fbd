// Single instructions that the sweeper needs, and what the processor must have for them.
#pragma once

#include <cpuid.h>

#include <cstddef>

namespace reachscan::arch {

// Stops the thread for its tracer, which sees a SIGTRAP.
inline void trap() { asm volatile("int3" ::: "memory"); }

// For loops that wait for another thread.
inline void relax() { asm volatile("pause" ::: "memory"); }

// For the helper, as a target may have made cpuid a fault.
inline bool has_protection_keys() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_OSPKE) != 0;
}

// Opens memory to this thread that the target closes by protection keys.
inline void open_protection_keys() { asm volatile("wrpkru" ::"a"(0), "c"(0), "d"(0) : "memory"); }

// Written so that the compiler cannot turn them into calls to memset() and memcpy().
inline void fill(void* target, int value, std::size_t length) {
  asm volatile("rep stosb" : "+D"(target), "+c"(length) : "a"(value) : "memory");
}

inline void copy_upwards(void* target, const void* source, std::size_t length) {
  asm volatile("rep movsb" : "+D"(target), "+S"(source), "+c"(length) : : "memory");
}

}  // namespace reachscan::arch
