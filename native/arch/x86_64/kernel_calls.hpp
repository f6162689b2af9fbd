// System calls without a C library or its errno.
#pragma once

#include <asm/unistd.h>

namespace reachscan::arch {

// Returns the kernel's result: errors are negative.
inline long kernel_call(long number, long first = 0, long second = 0, long third = 0,
                        long fourth = 0, long fifth = 0, long sixth = 0) {
  long result;
  register long r10 asm("r10") = fourth;
  register long r8 asm("r8") = fifth;
  register long r9 asm("r9") = sixth;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(first), "S"(second), "d"(third), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

// The sixth argument of the C library's syscall() as a parameter. It is on the stack, where it
// stays if a function jumps to the next one: nothing is passed.
struct SixthArgument {};

// The vdso function that reads clocks.
constexpr const char kReadClock[] = "__vdso_clock_gettime";

}  // namespace reachscan::arch
