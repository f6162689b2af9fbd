// Single instructions that the sweeper is in need of.
#pragma once

#include <cstddef>

namespace reachscan::arch {

// Stops the thread for its tracer, which sees a SIGTRAP.
inline void trap() { asm volatile("int3" ::: "memory"); }

// Inside a loop that waits for another thread.
inline void relax() { asm volatile("pause" ::: "memory"); }

// Not memset() and memcpy(), which the blob makes of these.
inline void fill(void* target, int value, std::size_t length) {
  asm volatile("rep stosb" : "+D"(target), "+c"(length) : "a"(value) : "memory");
}

inline void copy_upwards(void* target, const void* source, std::size_t length) {
  asm volatile("rep movsb" : "+D"(target), "+S"(source), "+c"(length) : : "memory");
}

}  // namespace reachscan::arch
