// Where thread-local variables are: below the thread pointer (variant II of the ELF TLS ABI).
#pragma once

#include <cstdint>

namespace reachscan::arch {

// Returns an address in the static TLS of the program and its initial libraries.
constexpr std::uint64_t inside_static_tls(std::uint64_t thread_pointer) {
  return thread_pointer - 1;
}

// The range that may hold such variables, at most `reach` bytes.
struct StaticTls {
  std::uint64_t start;
  std::uint64_t end;
};

constexpr StaticTls static_tls(std::uint64_t thread_pointer, std::uint64_t reach) {
  return {thread_pointer - reach, thread_pointer};
}

// The distance of a variable from the thread pointer, and back. It is never zero.
constexpr std::uint64_t tls_distance(std::uint64_t thread_pointer, std::uint64_t variable) {
  return thread_pointer - variable;
}

constexpr std::uint64_t tls_variable(std::uint64_t thread_pointer, std::uint64_t distance) {
  return thread_pointer - distance;
}

// Where glibc's table of a thread's variables is named, relative to the thread pointer (dtv).
constexpr std::uint64_t kTlsTableField = 8;

}  // namespace reachscan::arch
