# The helper contains the recorder as an ELF image, packed.
    .section .rodata
    .globl reachscan_injected
reachscan_injected:
    .incbin "injected-recorder.elf.gz"
    .section .note.GNU-stack, "", @progbits
