// The memory that a thread uses for its stack.
#pragma once

#include "libc/musl_thread.hpp"
#include "libc/thread_descriptor.hpp"
#include "memory/space.hpp"

namespace reachscan::libc {

using heaps::kPage;
using heaps::kWord;
using heaps::load;
using heaps::Range;
using heaps::Space;
using heaps::uint64_t;
using heaps::word;

// A thread's stack and its descriptor are in one block of memory, with the descriptor on top.
constexpr uint64_t kDescriptorReach = 4 * kPage;  // it starts at most this far below the end

// Returns the block recorded as the stack in the descriptor: three adjacent words hold its start,
// its size and the size of the guard (stackblock, stackblock_size, guardsize). Empty if the library
// did not create the thread, as with the first one.
inline Range stack_of(const Space& space, uint64_t thread_pointer) {
  musl::Memory of_musl = musl::memory_of(space, thread_pointer);
  if (of_musl.stack.end != 0) return of_musl.stack;
  const Range descriptor{thread_pointer - arch::kDescriptorBelow,
                         thread_pointer + arch::kDescriptorAbove};
  if (thread_pointer == 0 || !space.readable(descriptor.start, kDescriptorBytes)) return {0, 0};
  for (uint64_t at = descriptor.start; at + 3 * kWord <= descriptor.end; at += kWord) {
    uint64_t start = word(at), size = word(at + kWord), guard = word(at + 2 * kWord);
    if (start == 0 || start % kPage != 0 || size % kPage != 0 || guard >= size) continue;
    if (thread_pointer - start < size && thread_pointer + kDescriptorReach >= start + size)
      return {start, start + size};
  }
  return {0, 0};
}

// Returns the stack that a thread runs on, whose contents may look like anything. If the library
// did not create it, it is taken to extend from the stack pointer to the end of the mapping.
inline Range running_stack(const Space& space, const abi::Thread& thread) {
  Range own = stack_of(space, thread.thread_pointer);
  if (own.contains(thread.sp)) return own;
  const abi::Mapping* m = space.find(thread.sp);
  return m == nullptr ? Range{0, 0} : Range{thread.sp & ~(kPage - 1), m->end};
}

// Returns whether an exited thread may still be joined. The library gives the descriptor of a
// joined thread a negative number, and makes that of a detached one point to itself once more
// (joinid).
inline bool awaits_join(uint64_t descriptor, uint64_t bytes) {
  if (musl::has_exited(descriptor)) return true;
  if (load<int>(descriptor + kThreadNumber) < 0) return false;
  for (uint64_t at = descriptor + kThreadNumber + kWord; at < descriptor + bytes; at += kWord)
    if (word(at) == descriptor) return false;
  return true;
}

}  // namespace reachscan::libc
