// Caller-saved registers. They keep their last contents, such as copied data. Also where a function
// saves the callee-saved ones.
#pragma once

namespace reachscan::arch {

// A function that saves all callee-saved registers (__builtin_unwind_init) has this many of them
// right below its frame pointer, and the rest above.
constexpr unsigned kRegistersBelowFrame = 5;

inline void clear_vector_registers() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f"))
    asm volatile(
        ".irp n,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n\t"
        "vpxorq %zmm\\n,%zmm\\n,%zmm\\n\n\t"
        ".endr");
  if (__builtin_cpu_supports("avx")) {
    asm volatile("vzeroall");
  } else {
    asm volatile(
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n\t"
        "pxor %xmm\\n,%xmm\\n\n\t"
        ".endr");
  }
}

[[gnu::noinline]] inline void clear_scratch_registers() {
  clear_vector_registers();
  asm volatile(
      "xor %%eax,%%eax\n\txor %%ecx,%%ecx\n\txor %%edx,%%edx\n\txor %%esi,%%esi\n\t"
      "xor %%edi,%%edi\n\txor %%r8d,%%r8d\n\txor %%r9d,%%r9d\n\txor %%r10d,%%r10d\n\t"
      "xor %%r11d,%%r11d" ::
          : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "cc");
}

}  // namespace reachscan::arch
