# What the compiler needs to be told for this processor. Atomic operations out of line would ask a C
# library which of them the processor has.
set(BLOB_FLAGS -mno-outline-atomics)
