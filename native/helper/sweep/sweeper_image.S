# The helper contains the sweeper as bytes, in all its forms.
    .section .rodata
    .globl reachscan_sweeper, reachscan_sweeper_end
    .globl reachscan_fine_sweeper, reachscan_fine_sweeper_end
    .globl reachscan_short_sweeper, reachscan_short_sweeper_end
    .balign 16
reachscan_sweeper:
    .incbin "sweeper.bin"
reachscan_sweeper_end:
    .balign 16
reachscan_fine_sweeper:
    .incbin "fine_sweeper.bin"
reachscan_fine_sweeper_end:
    .balign 16
reachscan_short_sweeper:
    .incbin "short_sweeper.bin"
reachscan_short_sweeper_end:
    .section .note.GNU-stack, "", @progbits
