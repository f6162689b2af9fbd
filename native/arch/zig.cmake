# Compiles for TARGET with Clang, libc++ and musl, which the Python package `ziglang` brings along for all
# processors. Programs that are linked statically are smaller by half a megabyte than with glibc.
set(CMAKE_SYSTEM_NAME Linux)
find_program(ZIG python-zig REQUIRED)
# It compiles the libraries when it first links at a level of optimization. So CMake's checks link at that
# of the helper, or not at all.
set(CMAKE_C_COMPILER ${ZIG} cc --target=${TARGET} -O3)
set(CMAKE_CXX_COMPILER ${ZIG} c++ --target=${TARGET} -O3)
set(CMAKE_ASM_COMPILER ${ZIG} cc --target=${TARGET})
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
# It has a cache of its own, and others take its first word for the compiler.
set(CMAKE_C_COMPILER_LAUNCHER "")
set(CMAKE_CXX_COMPILER_LAUNCHER "")
