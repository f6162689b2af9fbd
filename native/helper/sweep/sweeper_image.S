# The sweeper travels inside the helper as bytes.
    .section .rodata
    .balign 16
    .globl reachscan_sweeper, reachscan_sweeper_end
reachscan_sweeper:
    .incbin "sweeper.bin"
reachscan_sweeper_end:
    .section .note.GNU-stack, "", @progbits
