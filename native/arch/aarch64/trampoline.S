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
// and its SIGCHLD handler never see it. No instruction here changes the flags. Signals are blocked
// because a handler run by the middleman would run on memory that the target is using. Calls change
// x0 only, so x4 keeps the middleman's number. The processor cannot jump to an address in memory
// without losing a register, so the last instruction is a direct branch, which the tracer writes.
    .section .rodata
    .balign 8
    .globl reachscan_trampoline, reachscan_trampoline_reap, reachscan_trampoline_literals
    .globl reachscan_trampoline_end

reachscan_trampoline:
    mov x8, #135                    // rt_sigprocmask(SIG_SETMASK, all, null, 8)
    mov x0, #2
    adr x1, all_signals
    mov x2, #0
    mov x3, #8
    svc #0
    mov x8, #167                    // prctl(PR_GET_CHILD_SUBREAPER, a word below the stack)
    mov x0, #37
    sub x1, sp, #64
    mov x3, #0
    mov x4, #0
    svc #0
    cbnz x0, restore                // no usable stack
    ldur w0, [sp, #-64]
    cbnz w0, restore                // the clone would come back to this process as its child
    mov x8, #220                    // clone(CLONE_VM and more, same stack: neither uses it)
    ldr x0, middleman_flags
    mov x1, #0
    svc #0
    cbz x0, middleman
    tbnz x0, #63, restore
    mov x4, x0
    mov x8, #129                    // kill(middleman, SIGKILL)
    mov x1, #9
    svc #0
reachscan_trampoline_reap:
    mov x8, #260                    // wait4(middleman, null, __WALL, null)
    mov x0, x4
    mov x1, #0
    mov x2, #0x40000000
    mov x3, #0
    svc #0
restore:
    mov x8, #135                    // rt_sigprocmask(SIG_SETMASK, own, null, 8)
    mov x0, #2
    adr x1, own_signals
    mov x2, #0
    mov x3, #8
    svc #0
    ldr x0, thread_x0
    ldr x1, thread_x1
    ldr x2, thread_x2
    ldr x3, thread_x3
    ldr x4, thread_x4
    ldr x8, thread_x8
    b back
middleman:
    mov x8, #94                     // exit_group, or what its tracer puts in its place
    svc #0
    b middleman
    .balign 8
reachscan_trampoline_literals:
back:         .word 0, 0            // b pc
all_signals:  .quad 0
own_signals:  .quad 0
middleman_flags: .quad 0
thread_x0:    .quad 0
thread_x1:    .quad 0
thread_x2:    .quad 0
thread_x3:    .quad 0
thread_x4:    .quad 0
thread_x8:    .quad 0
reachscan_trampoline_end:
    .section .note.GNU-stack, "", @progbits
