# The images that the helper carries, packed (helper/pack.py).
    .section .rodata
    .globl reachscan_images
    .balign 4
reachscan_images:
    .incbin "images.packed"
    .section .note.GNU-stack, "", %progbits
