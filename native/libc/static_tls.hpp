// The thread-local variables of the program and its initial libraries: each is at the same distance
// from the thread pointer in all threads.
#pragma once

#include "arch/thread_local.hpp"
#include "memory/space.hpp"

namespace reachscan::libc {

using heaps::Range;
using heaps::Space;
using heaps::uint64_t;

// A library's variables are close to the thread pointer, unless the program has many of its own.
constexpr uint64_t kTypicalTls = 0x3000;
constexpr uint64_t kLargestTls = 1 << 20;
// Searching that far in every thread would be expensive, and a few threads suffice to find a
// distance.
constexpr std::size_t kMaxThreadsForLargeTls = 16;

// Returns the readable part of a thread's static TLS, at most `reach` bytes of it.
inline Range readable_tls(const Space& space, uint64_t thread_pointer, uint64_t reach) {
  const arch::StaticTls tls = arch::static_tls(thread_pointer, reach);
  const abi::Mapping* first = space.find(arch::inside_static_tls(thread_pointer));
  if (first == nullptr || !Space::may_read(*first)) return {0, 0};
  const abi::Mapping* last = first;
  while (first != space.begin() && first->start > tls.start && first[-1].end == first->start &&
         Space::may_read(first[-1]))
    --first;
  while (last + 1 != space.end() && last->end < tls.end && last[1].start == last->end &&
         Space::may_read(last[1]))
    ++last;
  return {first->start > tls.start ? first->start : tls.start,
          last->end < tls.end ? last->end : tls.end};
}

}  // namespace reachscan::libc
