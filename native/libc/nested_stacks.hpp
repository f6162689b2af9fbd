// Stacks within stacks: a signal handler or a coroutine may run on an array in a frame of the
// thread's own stack. The frames it interrupted are then below the stack pointer.
#pragma once

#include "arch/signal_frame.hpp"
#include "memory/space.hpp"

namespace reachscan::libc {

using heaps::Range;
using heaps::Space;
using heaps::uint64_t;
using heaps::word;

using Context = arch::Context<heaps::kWord>;

constexpr unsigned kMaxLinks = 64;

class NestedStacks {
 public:
  NestedStacks(const Space& space, Range stack) : space_(space), stack_(stack) {}

  // Returns the start of the live part of the stack for a thread whose stack pointer is `sp`.
  uint64_t lowest_pointer(uint64_t sp) const {
    uint64_t lowest = sp;
    for (uint64_t at = heaps::align_up(sp, heaps::kWord); at + Context::kBytes <= stack_.end;
         at += heaps::kWord) {
      if (is_frame_of_handler(at)) lower(lowest, at);
      follow_links(lowest, word(at));
    }
    return lowest;
  }

 private:
  // The kernel notes in the frame which stack the handler runs on: the one that contains the frame.
  bool is_frame_of_handler(uint64_t at) const {
    Range alternate{word(at + Context::kStack), 0};
    alternate.end = alternate.start + word(at + Context::kStackSize);
    bool tells = alternate.contains(at) && stack_.contains(alternate.start) &&
                 alternate.end <= stack_.end &&
                 !alternate.contains(word(at + Context::kStackPointer));
    return (tells || arch::is_plain_frame(at)) && is_code(word(at + Context::kProgramCounter));
  }

  // A coroutine's stack starts with the context that it will return to.
  void follow_links(uint64_t& lowest, uint64_t context) const {
    for (unsigned links = 0; links < kMaxLinks && is_context(context); ++links) {
      lower(lowest, context);
      context = word(context + Context::kLink);
    }
  }

  bool is_context(uint64_t at) const {
    return at % heaps::kWord == 0 && space_.readable(at, Context::kBytes) &&
           arch::is_marked_context(at) && is_code(word(at + Context::kProgramCounter));
  }

  void lower(uint64_t& lowest, uint64_t context) const {
    uint64_t pointer = word(context + Context::kStackPointer);
    if (stack_.contains(pointer) && pointer < lowest) lowest = pointer;
  }

  bool is_code(uint64_t address) const {
    const abi::Mapping* m = space_.find(address);
    return m != nullptr && (m->perms & wire::kExecute) != 0;
  }

  const Space& space_;
  Range stack_;
};

}  // namespace reachscan::libc
