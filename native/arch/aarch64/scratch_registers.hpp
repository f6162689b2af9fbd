// Caller-saved registers. They keep their last contents, such as copied data. Also where a function
// saves the callee-saved ones.
#pragma once

namespace reachscan::arch {

// A function that saves all callee-saved registers has them above its frame pointer.
constexpr unsigned kRegistersBelowFrame = 0;

// Of v8 to v15, the lower halves belong to the caller (AAPCS64); the compiler saves them around
// this.
[[gnu::noinline]] inline void clear_scratch_registers() {
  asm volatile(
      ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,"
      "31\n\t"
      "movi v\\n\\().2d,#0\n\t"
      ".endr" ::
          : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13",
            "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25",
            "v26", "v27", "v28", "v29", "v30", "v31");
  asm volatile(
      ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17\n\t"
      "mov x\\n,#0\n\t"
      ".endr" ::
          : "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13",
            "x14", "x15", "x16", "x17");
}

}  // namespace reachscan::arch
