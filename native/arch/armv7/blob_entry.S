// The blob's first instruction. The helper has set sp to the top of a fresh stack. It enters in Arm
// state; the sweeper is Thumb.
    .syntax unified
    .arch armv7-a
    .arm
    .section .text.entry, "ax"
    .globl _start, reachscan_blob
reachscan_blob:
_start:
    bl reachscan_sweep
    .word 0xe7f001f0                // a breakpoint

// libgcc's division calls this for a divisor of zero, which there never is.
    .globl __aeabi_idiv0, __aeabi_ldiv0
    .type __aeabi_idiv0, %function
    .type __aeabi_ldiv0, %function
__aeabi_idiv0:
__aeabi_ldiv0:
    .word 0xe7f001f0
    .section .note.GNU-stack, "", %progbits
