# Compiler options for this processor. Out-of-line atomic operations would need a C library to find
# out which ones the processor has.
set(FAMILY arm)
set(BLOB_FLAGS -mno-outline-atomics)
set(RECORDER_FLAGS -mno-outline-atomics)
set(SHORT_WORDS ON)  # it runs 32-bit programs, too
set(LARGER_PAGES ON)  # of kernels: 16 or 64 KiB
set(LARGEST_PAGE 65536)
set(CALL bl[a-z]*[^a-z.])  # instructions that call, as disassembled
set(OWN_TABLES --eh-frame-hdr)  # the recorder unwinds its own frames by them
