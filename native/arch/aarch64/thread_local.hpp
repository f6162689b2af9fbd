// Where thread-local variables lie: above the thread pointer (variant I of the ELF TLS ABI), behind
// two words of the C library's.
#pragma once

#include <cstdint>

namespace reachscan::arch {

// An address within the variables of the program and the libraries that it began with.
constexpr std::uint64_t inside_static_tls(std::uint64_t thread_pointer) { return thread_pointer; }

// Where such variables may lie, at most `reach` bytes of them.
struct StaticTls {
  std::uint64_t start;
  std::uint64_t end;
};

constexpr StaticTls static_tls(std::uint64_t thread_pointer, std::uint64_t reach) {
  constexpr std::uint64_t kReserved = 16;
  return {thread_pointer + kReserved, thread_pointer + reach};
}

// How far from the thread pointer a variable is, and back. The distance is never zero.
constexpr std::uint64_t tls_distance(std::uint64_t thread_pointer, std::uint64_t variable) {
  return variable - thread_pointer;
}

constexpr std::uint64_t tls_variable(std::uint64_t thread_pointer, std::uint64_t distance) {
  return thread_pointer + distance;
}

}  // namespace reachscan::arch
