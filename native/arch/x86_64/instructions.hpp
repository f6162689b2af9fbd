// Single instructions that the sweeper needs.
#pragma once

#include <cstddef>

namespace reachscan::arch {

// Stops the thread for its tracer, which sees a SIGTRAP.
inline void trap() { asm volatile("int3" ::: "memory"); }

// For loops that wait for another thread.
inline void relax() { asm volatile("pause" ::: "memory"); }

// Written so that the compiler cannot turn them into calls to memset() and memcpy().
inline void fill(void* target, int value, std::size_t length) {
  asm volatile("rep stosb" : "+D"(target), "+c"(length) : "a"(value) : "memory");
}

inline void copy_upwards(void* target, const void* source, std::size_t length) {
  asm volatile("rep movsb" : "+D"(target), "+S"(source), "+c"(length) : : "memory");
}

}  // namespace reachscan::arch
