// Which memory a thread of the library has for its stack.
#pragma once

#include "memory/space.hpp"

namespace reachscan::heaps::glibc {

// A thread's stack and its descriptor (struct pthread) lie in one block of memory, descriptor on
// top.
constexpr uint64_t kDescriptorBytes = 0x900;
constexpr uint64_t kDescriptorReach = 4 * kPage;  // it starts at most so far below the end

// The block that the descriptor says is the stack: three adjacent words in it hold the start, the
// size and the size of the guard (stackblock, stackblock_size, guardsize). Empty if the thread was
// not made by the library, as the first one is not.
inline Range stack_of(const Space& space, uint64_t descriptor) {
  if (descriptor == 0 || !space.readable(descriptor, kDescriptorBytes)) return {0, 0};
  for (uint64_t at = descriptor; at + 24 <= descriptor + kDescriptorBytes; at += 8) {
    uint64_t start = word(at), size = word(at + 8), guard = word(at + 16);
    if (start == 0 || start % kPage != 0 || size % kPage != 0 || guard >= size) continue;
    if (descriptor - start < size && descriptor + kDescriptorReach >= start + size)
      return {start, start + size};
  }
  return {0, 0};
}

// In the descriptor: the vector of dynamic thread-local storage (header.dtv), which the next thread
// on the stack uses again, and the thread's number (tid).
constexpr uint64_t kThreadVector = 8;
constexpr uint64_t kThreadNumber = 0x2d0;

// Whether somebody may still ask for the result of a thread that has ended. The library gives the
// descriptor of a joined one a negative number, and lets that of a detached one point to itself
// once more (joinid).
inline bool awaits_join(uint64_t descriptor) {
  if (load<int>(descriptor + kThreadNumber) < 0) return false;
  for (uint64_t at = descriptor + kThreadNumber + 8; at < descriptor + kDescriptorBytes; at += 8)
    if (word(at) == descriptor) return false;
  return true;
}

}  // namespace reachscan::heaps::glibc
