// The code that one stopped thread of the target runs to clone itself. It exists for a moment in
// the unused tail of the target's vdso, uses no stack except one dead word below it, saves nothing
// and ends with the thread's own registers. So the tracer may die at any instruction of it:
//
//   thread:     block signals, start a middleman that shares memory, kill it, reap it, unblock,
//               resume
//   middleman:  exit; its tracer, which holds the thread meanwhile, makes it create the clone
//               instead, so that the clone is not a child of the target
//   clone:      stopped by its tracer before its first instruction; untraced, it exits
//
// The thread kills the middleman itself, since it would wait forever for one that something has
// stopped. The middleman reports with no signal and only to a __WALL wait: the target's own waits
// and its SIGCHLD handler never see it. Signals are blocked because a handler run by the middleman
// would run on memory that the target is using. Calls change r0 only, so r4 keeps the middleman's
// number. The last instruction also returns to Thumb, if the thread was there.
    .syntax unified
    .arch armv7-a
    .arm
    .section .rodata
    .balign 8
    .globl reachscan_trampoline, reachscan_trampoline_reap, reachscan_trampoline_literals
    .globl reachscan_trampoline_end

reachscan_trampoline:
    mov r7, #175                    // rt_sigprocmask(SIG_SETMASK, all, null, 8)
    mov r0, #2
    adr r1, all_signals
    mov r2, #0
    mov r3, #8
    svc #0
    mov r7, #172                    // prctl(PR_GET_CHILD_SUBREAPER, a word below the stack)
    mov r0, #37
    sub r1, sp, #64
    mov r3, #0
    mov r4, #0
    svc #0
    cmp r0, #0
    bne restore                     // no usable stack
    ldr r0, [sp, #-64]
    cmp r0, #0
    bne restore                     // the clone would come back to this process as its child
    mov r7, #120                    // clone(CLONE_VM and more, same stack: neither uses it)
    ldr r0, middleman_flags
    mov r1, #0
    svc #0
    cmp r0, #0
    beq middleman
    blt restore
    mov r4, r0
    mov r7, #37                     // kill(middleman, SIGKILL)
    mov r1, #9
    svc #0
reachscan_trampoline_reap:
    mov r7, #114                    // wait4(middleman, null, __WALL, null)
    mov r0, r4
    mov r1, #0
    mov r2, #0x40000000
    mov r3, #0
    svc #0
restore:
    mov r7, #175                    // rt_sigprocmask(SIG_SETMASK, own, null, 8)
    mov r0, #2
    adr r1, own_signals
    mov r2, #0
    mov r3, #8
    svc #0
    ldr r0, thread_flags
    msr APSR_nzcvqg, r0
    ldr r0, thread_r0
    ldr r1, thread_r1
    ldr r2, thread_r2
    ldr r3, thread_r3
    ldr r4, thread_r4
    ldr r7, thread_r7
    ldr pc, thread_pc
middleman:
    mov r7, #248                    // exit_group, or what its tracer puts in its place
    svc #0
    b middleman
    .balign 8
reachscan_trampoline_literals:
all_signals:  .quad 0
own_signals:  .quad 0
middleman_flags: .word 0
thread_flags: .word 0
thread_r0:    .word 0
thread_r1:    .word 0
thread_r2:    .word 0
thread_r3:    .word 0
thread_r4:    .word 0
thread_r7:    .word 0
thread_pc:    .word 0
unused:       .word 0
reachscan_trampoline_end:
    .section .note.GNU-stack, "", %progbits
