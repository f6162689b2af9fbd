# An instruction that makes a system call, followed by a breakpoint. A process executes it under the
# control of its tracer.
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
