// Where thread-local variables are: above the thread pointer (variant I of the ELF TLS ABI), after
// two words of the C library.
#pragma once

#include <cstdint>

#include "arch/address_space.hpp"

namespace reachscan::arch {

// Returns an address in the static TLS of the program and its initial libraries.
constexpr std::uint64_t inside_static_tls(std::uint64_t thread_pointer) { return thread_pointer; }

// The range that may hold such variables, at most `reach` bytes.
struct StaticTls {
  std::uint64_t start;
  std::uint64_t end;
};

constexpr StaticTls static_tls(std::uint64_t thread_pointer, std::uint64_t reach) {
  constexpr std::uint64_t kReserved = 2 * kWord;
  return {thread_pointer + kReserved, thread_pointer + reach};
}

// The distance of a variable from the thread pointer, and back. It is never zero.
constexpr std::uint64_t tls_distance(std::uint64_t thread_pointer, std::uint64_t variable) {
  return variable - thread_pointer;
}

constexpr std::uint64_t tls_variable(std::uint64_t thread_pointer, std::uint64_t distance) {
  return thread_pointer + distance;
}

// Where glibc's table of a thread's variables is named, relative to the thread pointer (dtv).
constexpr std::uint64_t kTlsTableField = 0;

}  // namespace reachscan::arch
