// The secret that glibc hides stack and code pointers with, in a jmp_buf for instance; what is done
// with it differs by processor (arch/mangling.hpp).
#pragma once

#include "libc/thread_descriptor.hpp"
#include "memory/space.hpp"

namespace reachscan::libc {

// The secret is the same in all threads. 0: not found.
inline heaps::uint64_t find_pointer_guard(const heaps::Space& space, const abi::Thread* threads,
                                          std::size_t thread_count) {
  for (std::size_t t = 0; t < thread_count; ++t) {
    heaps::uint64_t at = threads[t].thread_pointer + kPointerGuard;
    if (space.readable(at, 8) && heaps::word(at) != 0) return heaps::word(at);
  }
  return 0;
}

}  // namespace reachscan::libc
