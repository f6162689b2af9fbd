# Compiler options for this processor.
set(BLOB_FLAGS -fcf-protection=none)
set(SHORT_WORDS ON)  # it runs 32-bit programs, too
set(LARGEST_PAGE 4096)
set(CALL call[a-z]*)  # instructions that call, as disassembled
