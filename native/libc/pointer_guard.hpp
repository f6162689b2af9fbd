// The secret with which glibc mangles stack and code pointers, in a jmp_buf for instance. How it
// does so differs by processor (arch/mangling.hpp).
#pragma once

#include "libc/thread_descriptor.hpp"
#include "memory/space.hpp"

namespace reachscan::libc {

using heaps::kWord;
using heaps::uint64_t;

// Where descriptors have no room for the secret, the library uses the second of two random words
// that the kernel puts on the main stack. The auxiliary vector, near the end of that stack, holds
// their address, right after the AT_SECURE entry.
inline uint64_t find_random_words(const heaps::Space& space, const abi::Mapping& stack) {
  constexpr uint64_t kSecure = 23, kRandom = 25;  // AT_SECURE, AT_RANDOM
  constexpr uint64_t kReach = 256 << 10, kEntries = 4 * kWord;
  uint64_t lowest = stack.end - stack.start < kReach ? stack.start : stack.end - kReach;
  for (uint64_t at = stack.end - kEntries; at >= lowest; at -= kWord) {
    if (heaps::word(at) != kSecure || heaps::word(at + kWord) > 1 ||
        heaps::word(at + 2 * kWord) != kRandom)
      continue;
    uint64_t words = heaps::word(at + 3 * kWord);
    if (words > at && space.readable(words, 2 * kWord)) return words;
  }
  return 0;
}

inline uint64_t pointer_guard_of_kernel(const heaps::Space& space) {
  for (const abi::Mapping& m : space) {
    if ((m.flags & abi::kMainStack) == 0 || !heaps::Space::may_read(m)) continue;
    if (uint64_t words = find_random_words(space, m)) return heaps::word(words + kWord);
  }
  return 0;
}

// Returns the secret, which is the same in all threads, or 0 if it was not found.
inline uint64_t find_pointer_guard(const heaps::Space& space, const abi::Thread* threads,
                                   std::size_t thread_count) {
  if (!arch::kHasPointerGuard) return pointer_guard_of_kernel(space);
  for (std::size_t t = 0; t < thread_count; ++t) {
    uint64_t at = threads[t].thread_pointer + arch::kPointerGuard;
    if (space.readable(at, heaps::kWord) && heaps::word(at) != 0) return heaps::word(at);
  }
  return 0;
}

}  // namespace reachscan::libc
