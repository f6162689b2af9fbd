# Compiler options for this processor. Out-of-line atomic operations would need a C library to find
# out which ones the processor has.
set(BLOB_FLAGS -mno-outline-atomics)
set(RECORDER_FLAGS -mno-outline-atomics)
set(SHORT_WORDS ON)  # it runs 32-bit programs, too
set(LARGER_PAGES ON)  # of kernels: 16 or 64 KiB
