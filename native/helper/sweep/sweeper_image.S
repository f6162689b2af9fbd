# The helper contains the sweeper in all its forms, packed.
    .section .rodata
    .globl reachscan_sweeper, reachscan_fine_sweeper, reachscan_short_sweeper
reachscan_sweeper:
    .incbin "sweeper.bin.gz"
reachscan_fine_sweeper:
    .incbin "fine_sweeper.bin.gz"
reachscan_short_sweeper:
    .incbin "short_sweeper.bin.gz"
    .section .note.GNU-stack, "", @progbits
