# The code that one stopped thread of the target runs to clone itself. It exists for a moment in the
# unused tail of the target's vdso, uses no stack except one dead word below it, saves nothing and
# ends with the thread's own registers. So the tracer may die at any instruction of it:
#
#   thread:     block signals, start a middleman that shares memory, kill it, reap it, unblock,
#               resume
#   middleman:  exit; its tracer, which holds the thread meanwhile, makes it create the clone
#               instead, so that the clone is not a child of the target
#   clone:      stopped by its tracer before its first instruction; untraced, it exits
#
# The thread kills the middleman itself, since it would wait forever for one that something has
# stopped. The middleman reports with no signal and only to a __WALL wait: the target's own waits
# and its SIGCHLD handler never see it. No instruction here changes the flags; jrcxz and bswap
# replace compare and branch. Signals are blocked because a handler run by the middleman would run
# on memory that the target is using.
    .intel_syntax noprefix
    .section .rodata
    .balign 8
    .globl reachscan_trampoline, reachscan_trampoline_reap, reachscan_trampoline_literals
    .globl reachscan_trampoline_end

reachscan_trampoline:
    mov eax, 14                     # rt_sigprocmask(SIG_SETMASK, all, null, 8)
    mov edi, 2
    lea rsi, [rip + all_signals]
    mov edx, 0
    mov r10d, 8
    syscall
    mov eax, 157                    # prctl(PR_GET_CHILD_SUBREAPER, a word below the red zone)
    mov edi, 37
    lea rsi, [rsp - 192]
    mov edx, 0
    mov r10d, 0
    mov r8d, 0
    syscall
    mov rcx, rax
    jrcxz 1f
    jmp restore                     # no usable stack
1:  mov ecx, [rsp - 192]
    jrcxz 2f
    jmp restore                     # the clone would come back to this process as its child
2:
    mov eax, 56                     # clone(CLONE_VM and more, same stack: neither uses it)
    mov rdi, [rip + middleman_flags]
    mov esi, 0
    mov edx, 0
    mov r10d, 0
    mov r8d, 0
    syscall
    mov rcx, rax
    jrcxz middleman
    mov rdi, rax                    # a pid has a zero upper half, an error has not
    bswap rcx
    mov ecx, ecx
    jrcxz end_middleman
    jmp restore
middleman:
    mov eax, 231                    # exit_group, or what its tracer puts in its place
    syscall
    jmp middleman
end_middleman:
    mov eax, 62                     # kill(middleman, SIGKILL)
    mov esi, 9
    syscall
reachscan_trampoline_reap:
    mov eax, 61                     # wait4(middleman, null, __WALL, null)
    mov esi, 0
    mov edx, 0x40000000
    mov r10d, 0
    syscall
restore:
    mov eax, 14                     # rt_sigprocmask(SIG_SETMASK, own, null, 8)
    mov edi, 2
    lea rsi, [rip + own_signals]
    mov edx, 0
    mov r10d, 8
    syscall
    mov rax, [rip + thread_rax]
    mov rcx, [rip + thread_rcx]
    mov rdx, [rip + thread_rdx]
    mov rsi, [rip + thread_rsi]
    mov rdi, [rip + thread_rdi]
    mov r8, [rip + thread_r8]
    mov r10, [rip + thread_r10]
    mov r11, [rip + thread_r11]
    jmp [rip + thread_rip]
    .balign 8
reachscan_trampoline_literals:
all_signals:  .quad 0
own_signals:  .quad 0
middleman_flags: .quad 0
thread_rax:   .quad 0
thread_rcx:   .quad 0
thread_rdx:   .quad 0
thread_rsi:   .quad 0
thread_rdi:   .quad 0
thread_r8:    .quad 0
thread_r10:   .quad 0
thread_r11:   .quad 0
thread_rip:   .quad 0
reachscan_trampoline_end:
    .section .note.GNU-stack, "", @progbits
