# What compiles the helper that is shipped. With the distribution's C library it is small enough here: it
# holds one sweeper, and code of 32 bits is short.
include(${CMAKE_CURRENT_LIST_DIR}/toolchain.cmake)
