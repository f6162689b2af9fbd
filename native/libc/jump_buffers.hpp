// setjmp() buffers on the stacks of threads. Each has room for a signal mask, which is written only
// if the caller wants the mask restored: otherwise its old contents stay.
#pragma once

#include "arch/mangling.hpp"
#include "libc/thread_descriptor.hpp"
#include "memory/list.hpp"
#include "memory/space.hpp"

namespace reachscan::libc {

using heaps::Range;
using heaps::Space;
using heaps::uint64_t;
using heaps::word;

class JumpBuffers {
 public:
  // `stack`: the live part of the stack of the thread with this thread pointer.
  JumpBuffers(const Space& space, uint64_t pointer_guard, Range stack, uint64_t thread_pointer)
      : space_(space), guard_(pointer_guard), stack_(stack) {
    if (guard_ != 0) find_unwind_buffers(thread_pointer);
  }

  // Calls visit(range) for each mask that was not written.
  template <typename Visit>
  void each_unused_mask(Visit visit) const {
    if (guard_ == 0) return;
    for (uint64_t at = stack_.start; at + arch::kJumpBytes <= stack_.end; at += heaps::kWord)
      if (is_buffer(at) && heaps::load<int>(at + arch::kJumpMaskFlag) == 0 && !is_short(at))
        visit(Range{at + arch::kJumpMask, at + arch::kJumpBytes});
  }

 private:
  static constexpr unsigned kMaxUnwindBuffers = 64;

  // Returns whether the buffer's target is code, with a frame on this stack.
  bool is_buffer(uint64_t at) const {
    uint64_t pointer = revealed(at + arch::kJumpStackPointer);
    if (!stack_.contains(pointer) || pointer % heaps::kWord != 0) return false;
    const abi::Mapping* code = space_.find(revealed(at + arch::kJumpProgramCounter));
    return code != nullptr && (code->perms & wire::kExecute) != 0;
  }

  uint64_t revealed(uint64_t at) const { return arch::unmangled(word(at), guard_); }

  // The library's own buffers, for thread exit and clean-up handlers, are shorter. The descriptor
  // points to the last one, and each points to the one before, in the place of the mask.
  void find_unwind_buffers(uint64_t thread_pointer) {
    uint64_t at = thread_pointer - arch::kDescriptorBelow;
    const uint64_t end = thread_pointer + arch::kDescriptorAbove;
    // The descriptor may be smaller.
    while (at < end && !space_.readable(at, end - at)) at += kDescriptorAlignment;
    for (; at < end; at += heaps::kWord)
      for (uint64_t buffer = word(at); is_there(buffer) && is_buffer(buffer) && add(buffer);)
        buffer = word(buffer + arch::kJumpMask);
  }

  bool is_there(uint64_t buffer) const {
    return buffer % heaps::kWord == 0 && stack_.contains(buffer) &&
           stack_.end - buffer >= arch::kJumpMask + heaps::kWord;
  }

  bool add(uint64_t buffer) {
    if (count_ == kMaxUnwindBuffers) return false;
    unwind_buffers_[count_++] = buffer;
    return true;
  }

  bool is_short(uint64_t buffer) const {
    for (unsigned i = 0; i < count_; ++i)
      if (unwind_buffers_[i] == buffer) return true;
    return false;
  }

  const Space& space_;
  uint64_t guard_;
  Range stack_;
  uint64_t unwind_buffers_[kMaxUnwindBuffers];
  unsigned count_ = 0;
};

}  // namespace reachscan::libc
