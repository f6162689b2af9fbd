// Where thread-local variables lie: below the thread pointer (variant II of the ELF TLS ABI).
#pragma once

#include <cstdint>

namespace reachscan::arch {

// An address within the variables of the program and the libraries that it began with.
constexpr std::uint64_t inside_static_tls(std::uint64_t thread_pointer) {
  return thread_pointer - 1;
}

// Where such variables may lie, at most `reach` bytes of them.
struct StaticTls {
  std::uint64_t start;
  std::uint64_t end;
};

constexpr StaticTls static_tls(std::uint64_t thread_pointer, std::uint64_t reach) {
  return {thread_pointer - reach, thread_pointer};
}

// How far from the thread pointer a variable is, and back. The distance is never zero.
constexpr std::uint64_t tls_distance(std::uint64_t thread_pointer, std::uint64_t variable) {
  return thread_pointer - variable;
}

constexpr std::uint64_t tls_variable(std::uint64_t thread_pointer, std::uint64_t distance) {
  return thread_pointer - distance;
}

}  // namespace reachscan::arch
