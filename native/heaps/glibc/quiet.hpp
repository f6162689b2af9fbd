// Whether any thread is inside the allocator, and what the helper must watch to see it leave.
#pragma once

#include <sys/syscall.h>

#include "heaps/code.hpp"
#include "heaps/glibc/find_arenas.hpp"

namespace reachscan::heaps::glibc {

// The allocator is one object file, so its functions are adjacent. Those that name main_arena
// delimit the range; the margins cover functions before the first and after the last.
constexpr uint64_t kMarginBefore = 0x2000;
constexpr uint64_t kMarginAfter = 0x1000;

inline Range allocator_text(const Space& space, const Instance& instance) {
  Range text{~0ull, 0};
  Range arena{instance.main_arena, instance.main_arena + instance.layout.size};
  each_naming(space, instance.file, arena, [&text](uint64_t at) {
    if (at < text.start) text.start = at;
    if (at > text.end) text.end = at;
  });
  if (text.end == 0) return {0, 0};
  return {text.start - kMarginBefore, text.end + kMarginAfter};
}

// All code of the library, including gaps between its parts.
inline abi::CodeRange library_code(const Space& space, const Instance& instance) {
  abi::CodeRange code{0, 0};
  for (const abi::Mapping& m : space) {
    if ((m.perms & wire::kExecute) == 0 || m.file != instance.file) continue;
    if (code.end == 0) code.start = m.start;
    code.end = m.end;
  }
  return code;
}

// The system calls with which the allocator gets and releases memory.
constexpr uint32_t kMemoryCalls[] = {arch::kMapCall, SYS_mprotect, SYS_munmap,
                                     SYS_brk,        SYS_mremap,   SYS_madvise};

inline bool is_memory_call(uint32_t number) {
  if (kWord == 4) return arch::is_short_memory_call(number);
  for (uint32_t known : kMemoryCalls)
    if (number == known) return true;
  return false;
}

// The allocator's own code makes no system calls, and the functions it calls make only those.
inline bool is_at_other_system_call(const Space& space, uint64_t pc) {
  arch::SystemCall call = arch::system_call_at(pc, ReadSpace{space});
  return call.made && !(call.known && is_memory_call(call.number));
}

inline bool may_be_inside(const Space& space, const Instance& instance, const abi::Thread& thread) {
  // 32-bit code may load the number of a system call outside the range that is searched.
  if (kWord == 4 && thread.sleep != abi::Sleep::kNoOrUnknown) return false;
  abi::Frame frame = thread.frame();
  uint64_t pc = frame.pc;
  arch::leave_system_call<kWord>(pc, frame.sp, ReadSpace{space});
  const abi::Mapping* m = space.find(pc);
  return m != nullptr && m->file == instance.file && !is_at_other_system_call(space, pc);
}

inline void describe_code(const Space& space, const Instance& instance, abi::QuiesceHint& hint) {
  Range text = allocator_text(space, instance);
  hint.text.add({text.start, text.end});
  hint.callees.add(library_code(space, instance));
}

// Fills the hint and returns whether the allocator is quiescent: no arena locked, no thread in its
// code. Finding the code takes a pass over it, so that is skipped when no thread can be there.
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
    suspect = suspect || may_be_inside(space, instance, threads[t]);
  if (!suspect) return true;
  describe_code(space, instance, hint);
  for (std::size_t t = 0; t < thread_count; ++t) {
    if (may_be_inside(space, instance, threads[t]) &&
        abi::is_inside(hint.text, threads[t].frame(), ReadSpace{space}))
      return false;
  }
  return !locked;
}

}  // namespace reachscan::heaps::glibc
