// The blob's first instruction. The helper has set sp to the top of a fresh stack.
    .section .text.entry, "ax"
    .globl _start, reachscan_blob
reachscan_blob:
_start:
    bl reachscan_sweep
    udf #0
    .section .note.GNU-stack, "", @progbits
