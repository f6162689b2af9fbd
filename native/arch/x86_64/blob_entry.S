# The blob's first instruction. The helper has set rsp to the top of a fresh stack.
    .intel_syntax noprefix
    .section .text.entry, "ax"
    .globl _start, reachscan_blob
reachscan_blob:
_start:
    and rsp, -16
    call reachscan_sweep
    ud2
    .section .note.GNU-stack, "", @progbits
