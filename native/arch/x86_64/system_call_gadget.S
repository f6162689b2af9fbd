# One instruction that makes a system call, and a breakpoint behind it. A process that is led by its
# tracer executes it.
    .intel_syntax noprefix
    .text
    .balign 16
    .globl reachscan_gadget, reachscan_gadget_end
reachscan_gadget:
    syscall
    int3
reachscan_gadget_end:
    .balign 16
    .section .note.GNU-stack, "", @progbits
