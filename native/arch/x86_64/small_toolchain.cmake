# What compiles the helper that is shipped.
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(TARGET x86_64-linux-musl)
include(${CMAKE_CURRENT_LIST_DIR}/../zig.cmake)
