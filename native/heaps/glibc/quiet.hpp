// Whether any thread is inside the allocator, and what an outsider must watch to see it leave.
#pragma once

#include "heaps/glibc/find_arenas.hpp"

namespace reachscan::heaps::glibc {

// The allocator is one object file, so its functions lie together. Those that name main_arena mark
// out the range; the margins cover the ones before the first and after the last.
constexpr uint64_t kMarginBefore = 0x2000;
constexpr uint64_t kMarginAfter = 0x1000;

// Address that a `lea reg, [rip + x]` or, in programs at fixed addresses, a `mov reg, imm32` at
// `at` yields; 0 if it is neither.
inline uint64_t named_address(uint64_t at) {
  uint8_t first = load<uint8_t>(at), second = load<uint8_t>(at + 1);
  if ((first == 0x48 || first == 0x4c) && second == 0x8d && (load<uint8_t>(at + 2) & 0xc7) == 0x05)
    return at + 7 + static_cast<uint64_t>(int64_t{load<int32_t>(at + 3)});
  if ((first & 0xf8) == 0xb8) return load<uint32_t>(at + 1);
  return 0;
}

inline Range allocator_text(const Space& space, const Instance& instance) {
  Range text{~0ull, 0};
  for (const abi::Mapping& m : space) {
    constexpr uint32_t kCode = wire::kRead | wire::kExecute;
    if ((m.perms & kCode) != kCode || m.file != instance.file) continue;
    for (uint64_t at = m.start; at + 8 <= m.end; ++at) {
      if (named_address(at) - instance.main_arena >= instance.layout.size) continue;
      if (at < text.start) text.start = at;
      if (at > text.end) text.end = at;
    }
  }
  if (text.end == 0) return {0, 0};
  return {text.start - kMarginBefore, text.end + kMarginAfter};
}

// The allocator's own code makes no system calls: brk() and the like lie elsewhere in the library,
// and it holds a lock while it calls them.
inline bool behind_system_call(const Space& space, uint64_t pc) {
  return space.readable(pc - 2, 2) && load<uint8_t>(pc - 2) == 0x0f &&
         load<uint8_t>(pc - 1) == 0x05;
}

inline bool may_be_inside(const Space& space, const Instance& instance, uint64_t pc) {
  const abi::Mapping* m = space.find(pc);
  return m != nullptr && m->file == instance.file && !behind_system_call(space, pc);
}

// Fills the hint and tells whether the allocator is at rest: no arena locked, no thread in its
// code. Finding the code takes a pass over it, so that is left out when no thread can be there.
inline bool is_quiet(const Space& space, const Instance& instance, const List<Arena>& arenas,
                     const abi::Thread* threads, std::size_t thread_count, abi::QuiesceHint& hint) {
  bool locked = false;
  for (const Arena& arena : arenas) {
    if (hint.mutex_count < abi::QuiesceHint::kMaxMutexes)
      hint.mutexes[hint.mutex_count++] = arena.address;
    locked = locked || arena.mutex() != 0;
  }
  bool suspect = locked;
  for (std::size_t t = 0; t < thread_count; ++t)
    suspect = suspect || may_be_inside(space, instance, threads[t].pc);
  if (!suspect) return true;
  Range text = allocator_text(space, instance);
  hint.text_start = text.start;
  hint.text_end = text.end;
  for (std::size_t t = 0; t < thread_count; ++t)
    if (text.contains(threads[t].pc)) return false;
  return !locked;
}

}  // namespace reachscan::heaps::glibc
