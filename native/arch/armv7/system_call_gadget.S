// An instruction that makes a system call, followed by a breakpoint. A process executes it under
// the control of its tracer.
    .syntax unified
    .arm
    .text
    .balign 16
    .globl reachscan_gadget, reachscan_gadget_end
reachscan_gadget:
    svc #0
    .word 0xe7f001f0
reachscan_gadget_end:
    .balign 16
    .section .note.GNU-stack, "", %progbits
