// The helper contains the sweeper in all its forms, packed: a table of where each starts.
#ifdef __LP64__
#define POINTER .quad
#else
#define POINTER .word
#endif
    .macro image file
    .section .rodata
1:  .incbin "\file"
    .section .data.rel.ro, "aw"
    POINTER 1b
    .endm

    .section .data.rel.ro, "aw"
    .globl reachscan_sweepers
    .balign 8
reachscan_sweepers:
    image "sweeper.bin.gz"
    image "fine_sweeper.bin.gz"
    image "short_sweeper.bin.gz"
    image "sweeper_16.bin.gz"
    image "sweeper_64.bin.gz"
    .section .note.GNU-stack, "", %progbits
