// What the program can reach directly: registers, and writable memory that is not heap, except
// registers that are left over, the dead parts of stacks and the allocator's own variables.
#pragma once

#include "libc/jump_buffers.hpp"
#include "libc/nested_stacks.hpp"
#include "libc/pointer_guard.hpp"
#include "libc/threads.hpp"
#include "sweeper/mark/mark.hpp"
#include "sweeper/mark/words.hpp"
#include "sweeper/roots/annotations.hpp"
#include "sweeper/roots/python_arenas.hpp"

namespace reachscan::sweeper {

using heaps::List;
using heaps::Range;
using heaps::Space;
using heaps::word;

constexpr std::size_t kMaxExclusions = 1 << 18;
constexpr std::size_t kMaxStaleWords = kMaxExclusions / 2;

class Roots {
 public:
  Roots(const Space& space, const BlockMap& blocks, const libc::Threads& threads)
      : space_(space),
        blocks_(blocks),
        python_arenas_(space, blocks),
        excluded_(map_memory, kMaxExclusions),
        unclear_(map_memory, kMaxExclusions) {
    for (const heaps::Region& region : blocks.regions) exclude(region.start, region.end);
    uint64_t guard = libc::find_pointer_guard(space, threads.running, threads.running_count);
    for (std::size_t t = 0; t < threads.running_count; ++t)
      exclude_dead_stack(threads.running[t], guard);
    for (const libc::ExitedThread& thread : threads.ended)
      exclude_exited(thread, threads.descriptors.bytes);
    python_arenas_.each_free([this](Range range) { exclude_stale_words(range); });
  }

  // Applies what the program declares about its memory.
  void obey(const Annotations& annotations) {
    annotations_ = &annotations;
    annotations.each_unseen([this](Range range) { exclude(range.start, range.end); });
  }

  void exclude(uint64_t start, uint64_t end) {
    if (start < end && !excluded_.push({start, end}))
      refuse(abi::Refusal::kNoMemory, "too many memory regions", start);
  }

  // What only such memory points to is possibly leaked: nothing has written there on purpose, or it
  // may be an allocator's.
  void exclude_unclear(Range range) {
    exclude(range.start, range.end);
    unclear_.push(range);
  }

  // An upper bound of the bytes that mark() will scan.
  uint64_t size() const {
    uint64_t bytes = 0;
    for (const abi::Mapping& m : space_)
      if (is_root(m)) bytes += m.end - m.start;
    for (const heaps::Region& region : blocks_.regions) {
      uint64_t length = region.end - region.start;
      bytes -= length < bytes ? length : bytes;
    }
    return bytes;
  }

  void mark(Marker& marker) {
    each_part([&](uint64_t start, uint64_t end) { marker.mark_range(start, end); });
    each_unaligned_word([&](uint64_t, uint64_t value) { marker.mark_value(value); });
    each_register_word([&](uint64_t, uint64_t value) { marker.mark_value(value); });
  }

  // Calls visit(start, end) for each range of memory that is a root; `start` is word-aligned.
  template <typename Visit>
  void each_part(Visit visit) {
    each_part_of_mapping(
        [&](const abi::Mapping&, uint64_t start, uint64_t end) { visit(start, end); });
    if (annotations_ != nullptr) annotations_->each_root(visit);
  }

  // A just-in-time compiler writes addresses into the instructions that it generates, at any byte.
  // Calls visit(address, value) for the unaligned words of executable memory.
  template <typename Visit>
  void each_unaligned_word(Visit visit) {
    each_part_of_mapping([&](const abi::Mapping& m, uint64_t start, uint64_t end) {
      if ((m.perms & wire::kExecute) == 0 || (m.flags & abi::kMainStack) != 0) return;
      for (uint64_t at = start; at + heaps::kWord <= end; ++at)
        if (at % heaps::kWord != 0) visit(at, word(at));
    });
  }

  // Calls visit(address, value) for words of such memory.
  template <typename Visit>
  void each_unclear_word(Visit visit) const {
    for (const Range& range : unclear_) each_word(space_, range.start, range.end, visit);
  }

  const PythonArenas& python_arenas() const { return python_arenas_; }

  // Returns whether the word at `slot` may be in recycled memory, as heap memory is.
  bool is_recycled(uint64_t slot) const { return python_arenas_.contains(slot); }

  // Calls visit(index, value) for the contents of registers and what the kernel holds.
  template <typename Visit>
  static void each_register_word(Visit visit) {
    uint64_t next = 0;
    each_scratch([&](Range scratch) {
      each_word_of_registers({next, scratch.start}, visit);
      next = scratch.end;
    });
    each_word_of_registers({next, control()->word_count}, visit);
  }

  // The same for registers of sleeping threads that are left over from earlier calls.
  template <typename Visit>
  static void each_scratch_word(Visit visit) {
    each_scratch([&](Range scratch) { each_word_of_registers(scratch, visit); });
  }

  // Registers and words held by the kernel are passed in units of eight bytes.
  template <typename Visit>
  static void each_word_of_register(uint64_t index, Visit visit) {
    uint64_t at = control()->words + index * sizeof(uint64_t);
    for (uint64_t end = at + sizeof(uint64_t); at < end; at += heaps::kWord) visit(word(at));
  }

 private:
  // Calls visit(range) for indices of registers, in ascending order.
  template <typename Visit>
  static void each_scratch(Visit visit) {
    const auto* threads = reinterpret_cast<const abi::Thread*>(control()->threads);
    for (uint64_t t = 0; t < control()->thread_count; ++t)
      if (threads[t].scratch_start < threads[t].scratch_end)
        visit(Range{threads[t].scratch_start, threads[t].scratch_end});
  }

  template <typename Visit>
  static void each_word_of_registers(Range indices, Visit visit) {
    for (uint64_t i = indices.start; i < indices.end; ++i)
      each_word_of_register(i, [&](uint64_t value) { visit(i, value); });
  }

  // Calls visit(mapping, start, end) for each range of a mapping that is a root.
  template <typename Visit>
  void each_part_of_mapping(Visit visit) {
    heaps::sort(excluded_, [](const Range& a, const Range& b) { return a.start < b.start; });
    std::size_t next = 0;
    uint64_t free_from = 0;  // everything before is done or excluded
    for (const abi::Mapping& m : space_) {
      if (!is_root(m)) continue;
      uint64_t at = m.start > free_from ? m.start : free_from;
      for (; next < excluded_.size() && excluded_[next].start < m.end; ++next) {
        if (at < excluded_[next].start)
          visit(m, heaps::align_up(at, heaps::kWord), excluded_[next].start);
        if (excluded_[next].end > at) at = excluded_[next].end;
      }
      if (at < m.end) visit(m, heaps::align_up(at, heaps::kWord), m.end);
      free_from = at;
    }
  }

  static bool is_root(const abi::Mapping& m) {
    constexpr uint32_t kNever = abi::kKernelOwned | abi::kUntouchable | abi::kAbsent;
    if ((m.perms & wire::kRead) == 0 || (m.flags & kNever) != 0) return false;
    // The program may have protected its memory after writing to it.
    return (m.perms & wire::kWrite) != 0 || (m.flags & abi::kProtected) != 0 ||
           Space::is_anonymous(m);
  }

  // Nothing below a thread's stack pointer (and red zone) is live. That applies to the stack it is
  // running on; the stack of a thread that is running elsewhere (signal stack, coroutine) stays a
  // root as a whole.
  void exclude_dead_stack(const abi::Thread& thread, uint64_t pointer_guard) {
    const abi::Mapping* m = space_.find(thread.sp);
    if (m == nullptr) return;
    Range own = libc::stack_of(space_, thread.thread_pointer);
    if (!own.contains(thread.sp)) {
      if ((m->flags & abi::kMainStack) == 0) return;
      own = {m->start, m->end};
    }
    uint64_t lowest = libc::NestedStacks(space_, own).lowest_pointer(thread.sp);
    uint64_t live = (lowest - arch::kRedZone) & ~uint64_t{heaps::kWord - 1};
    exclude(own.start, live);
    libc::JumpBuffers buffers(space_, pointer_guard, {live, own.end}, thread.thread_pointer);
    buffers.each_unused_mask([this](Range mask) { exclude_unclear(mask); });
  }

  // On the stack of an exited thread, nothing is live except what the descriptor on top keeps for
  // the next thread or, until the thread is joined, for the thread that joins it. If it ends at
  // the thread pointer, thread-local variables follow.
  void exclude_exited(const libc::ExitedThread& thread, uint64_t descriptor_bytes) {
    const uint64_t vector = thread.thread_pointer + arch::kThreadVector;
    Range kept{vector, vector + heaps::kWord};
    if (libc::awaits_join(thread.descriptor, descriptor_bytes)) {
      kept.start = thread.descriptor;
      if (arch::kDescriptorAbove != 0) kept.end = thread.stack.end;
    }
    exclude(thread.stack.start, kept.start);
    exclude(kept.end, thread.stack.end);
  }

  // Free memory may consist of millions of pieces, so only words in it that would mark a block are
  // excluded. When there is no room for more of them, the rest stay roots.
  void exclude_stale_words(Range free) {
    each_word(space_, free.start, free.end, [this](uint64_t at, uint64_t value) {
      if (blocks_.block_of(value) == 0) return;
      if (stale_words_ == kMaxStaleWords) return;
      ++stale_words_;
      exclude(at, at + heaps::kWord);
    });
  }

  const Space& space_;
  const Annotations* annotations_ = nullptr;
  const BlockMap& blocks_;
  PythonArenas python_arenas_;
  List<Range> excluded_;
  List<Range> unclear_;  // also excluded
  std::size_t stale_words_ = 0;
};

}  // namespace reachscan::sweeper
