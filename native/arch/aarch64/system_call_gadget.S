// One instruction that makes a system call, and a breakpoint behind it. A process that is led by its
// tracer executes it.
    .text
    .balign 16
    .globl reachscan_gadget, reachscan_gadget_end
reachscan_gadget:
    svc #0
    brk #0
reachscan_gadget_end:
    .balign 16
    .section .note.GNU-stack, "", @progbits
