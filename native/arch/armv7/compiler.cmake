# Compiler options for this processor. Addresses have 64 bits everywhere in reachscan, pointers 32.
set(FAMILY arm)
set(LONG_WORDS OFF)  # it runs no 64-bit programs
set(SHORT_WORDS ON)
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-int-to-pointer-cast>
                    $<$<COMPILE_LANGUAGE:CXX>:-Wno-psabi>)
add_compile_definitions(_FILE_OFFSET_BITS=64 _TIME_BITS=64)
# The addresses of functions that other files might define, too, would be in a table with relocations.
set(BLOB_FLAGS -fno-unwind-tables -fwhole-program)
# Not all of these processors can divide, and none can divide 64 bits.
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-libgcc-file-name
                OUTPUT_VARIABLE BLOB_LIBRARY OUTPUT_STRIP_TRAILING_WHITESPACE)
