# The helper contains the recorder as an ELF image.
    .section .rodata
    .globl reachscan_injected, reachscan_injected_end
    .balign 16
reachscan_injected:
    .incbin "injected-recorder.elf"
reachscan_injected_end:
    .section .note.GNU-stack, "", @progbits
