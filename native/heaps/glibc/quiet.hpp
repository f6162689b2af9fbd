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

// A thread that waits for an arena does so here. The arena may be free again by now.
inline bool is_futex_call(uint32_t number) {
  constexpr uint32_t kShortFutex = 240;
  return number == (kWord == 4 ? kShortFutex : SYS_futex);
}

// Returns whether a system call shows that the thread is not inside the allocator. The allocator's
// own code makes no system calls; the functions it calls get and release memory, or wait for an
// arena. An exiting thread that waits has freed only some of the chunks in its cache.
inline bool is_at_other_system_call(const Space& space, const abi::Thread& thread, uint64_t pc) {
  arch::SystemCall call = arch::system_call_at(pc, ReadSpace{space});
  if (!call.made) return false;
  if (call.known && is_memory_call(call.number)) return false;
  bool may_wait = !call.known || is_futex_call(call.number);
  return !may_wait || thread.sleep == abi::Sleep::kOtherwise;
}

inline bool may_be_inside(const Space& space, const Instance& instance, const abi::Thread& thread) {
  // 32-bit code may load the number of a system call outside the range that is searched.
  if (kWord == 4 && thread.sleep == abi::Sleep::kOtherwise) return false;
  abi::Frame frame = thread.frame();
  uint64_t pc = frame.pc;
  arch::leave_system_call<kWord>(pc, frame.sp, ReadSpace{space});
  const abi::Mapping* m = space.find(pc);
  return m != nullptr && m->file == instance.file && !is_at_other_system_call(space, thread, pc);
}

inline void describe_code(const Space& space, const Instance& instance, abi::QuiesceHint& hint) {
  Range text = allocator_text(space, instance);
  hint.text.add({text.start, text.end});
  hint.callees.add(library_code(space, instance));
}

// What waits for a lock is not the allocator's own code, though it may be close to it.
inline bool is_inside(const Space& space, const abi::Thread& thread, const abi::QuiesceHint& hint) {
  ReadSpace read{space};
  return thread.sleep == abi::Sleep::kForLock
             ? abi::is_called_by<abi::TailCalls::kNo, kWord>(hint.text, thread.frame(), read)
             : abi::is_inside<kWord>(hint.text, thread.frame(), read);
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
    if (may_be_inside(space, instance, threads[t]) && is_inside(space, threads[t], hint))
      return false;
  }
  return !locked;
}

}  // namespace reachscan::heaps::glibc
