# What compiles the helper that is shipped.
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(TARGET aarch64-linux-musl)
include(${CMAKE_CURRENT_LIST_DIR}/../zig.cmake)
