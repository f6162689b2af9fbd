// System calls without a C library or its errno.
#pragma once

#include <asm/unistd.h>

namespace reachscan::arch {

// Returns the kernel's result: errors are negative.
inline long kernel_call(long number, long first = 0, long second = 0, long third = 0,
                        long fourth = 0, long fifth = 0, long sixth = 0) {
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = first;
  register long x1 asm("x1") = second;
  register long x2 asm("x2") = third;
  register long x3 asm("x3") = fourth;
  register long x4 asm("x4") = fifth;
  register long x5 asm("x5") = sixth;
  asm volatile("svc #0"
               : "+r"(x0)
               : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
               : "memory");
  return x0;
}

// The sixth argument of the C library's syscall() as a parameter: it is in a register.
using SixthArgument = long;

// The vdso function that reads clocks.
constexpr const char kReadClock[] = "__kernel_clock_gettime";

}  // namespace reachscan::arch
