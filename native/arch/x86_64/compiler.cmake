# What the compiler needs to be told for this processor.
set(BLOB_FLAGS -fcf-protection=none)
