// The threads of musl. A thread's stack, its thread-local variables, its descriptor (struct
// pthread, which the thread pointer points to) and the values of its keys are in one mapping, in
// this order, after a guard. When a thread exits, the library unmaps this memory unless the thread
// is still to be joined; then only the return value in it is live.
#pragma once

#include "memory/space.hpp"

namespace reachscan::libc::musl {

using heaps::kPage;
using heaps::kWord;
using heaps::load;
using heaps::Range;
using heaps::Space;
using heaps::uint64_t;
using heaps::word;

constexpr uint64_t kDescriptorBytes = 200;
constexpr uint64_t kMaxKeyBytes = 128 * 8;
// The links of the list of threads. A thread that has exited links to itself.
constexpr uint64_t kPrevious = 16;
constexpr uint64_t kNext = 24;
constexpr uint64_t kDetachState = 56;
constexpr int kExited = 0;
constexpr uint64_t kMapping = 72;  // map_base, map_size, stack, stack_size, guard_size

struct Memory {
  Range all;
  Range stack;  // the part used for frames
};

// Returns the memory recorded in the descriptor. All empty if it is not one of musl's, or if the
// program provided the stack, as the kernel does for the first thread.
inline Memory memory_of(const Space& space, uint64_t descriptor) {
  if (kWord != 8 || !space.readable(descriptor, kDescriptorBytes) || word(descriptor) != descriptor)
    return {};
  uint64_t start = word(descriptor + kMapping), size = word(descriptor + kMapping + 8);
  uint64_t top = word(descriptor + kMapping + 16), usable = word(descriptor + kMapping + 24);
  uint64_t guard = word(descriptor + kMapping + 32);
  Range all{start, start + size};
  bool possible = start != 0 && start % kPage == 0 && size % kPage == 0 && guard % kPage == 0 &&
                  guard < size && all.contains(top) && top - usable == start + guard;
  if (!possible || descriptor < top || !all.contains(descriptor)) return {};
  return {all, {start + guard, top}};
}

inline bool has_exited(uint64_t descriptor) {
  return kWord == 8 && word(descriptor + kPrevious) == descriptor &&
         word(descriptor + kNext) == descriptor && load<int>(descriptor + kDetachState) == kExited;
}

// Returns the descriptor of an exited thread whose memory ends at `end`, 0 if there is none.
inline uint64_t exited_below(const Space& space, uint64_t start, uint64_t end) {
  constexpr uint64_t kReach = kDescriptorBytes + kMaxKeyBytes + kPage / 4;
  uint64_t lowest = end - start < kReach ? start : end - kReach;
  for (uint64_t at = heaps::align_up(lowest, 8); at + kDescriptorBytes <= end; at += 8)
    if (word(at) == at && has_exited(at) && memory_of(space, at).all.end == end) return at;
  return 0;
}

}  // namespace reachscan::libc::musl
