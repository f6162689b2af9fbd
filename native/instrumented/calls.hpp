// The calls that a thread is in, as reported by functions compiled with -finstrument-functions. The
// array grows downwards: the live stack is one contiguous piece of memory, innermost call first.
//
// A function that longjmp() leaves reports nothing. Its entry is recognised by its stack pointer,
// which is below the end of the frame of a function called later, or below the target of longjmp().
// Without a frame pointer, the end of a frame is unknown, so some entries may stay until their
// caller returns. Each stack that a thread runs on has an array of its own. Stacks are
// distinguished by distance: where it is too large for a frame, a new stack starts, and is shorter
// than it could be.
#pragma once

#include <cstddef>
#include <cstdint>

#include "arch/frames.hpp"

namespace reachscan::instrumented {

// Live calls, innermost first. `sps` are the stack pointers of the called functions.
struct CallSites {
  void* const* sites = nullptr;  // return addresses
  const std::uint64_t* sps = nullptr;
  std::uint32_t count = 0;
};

class CallStack {
 public:
  static constexpr std::uint32_t kDeepest = 2048;

  void clear(std::uint64_t sp) {
    top_ = kDeepest;
    beyond_ = 0;
    outermost_ = sp;
  }

  // Returns whether a function with this stack pointer can be on this stack.
  bool reaches(std::uint64_t sp) const {
    std::uint64_t innermost = top_ < kDeepest ? sps_[top_] : outermost_;
    return sp + kLargestFrame > innermost && sp < outermost_ + kLargestFrame;
  }

  // `frame_end` is where the frame of the function ends, or at least its `sp`. Functions inlined
  // into it have the same stack pointer, and are left before it.
  void enter(void* function, void* site, std::uint64_t sp, std::uint64_t frame_end) {
    if (top_ < kDeepest && sps_[top_] == sp && sites_[top_] == site && functions_[top_] != function)
      return;
    drop(frame_end > sp ? frame_end : sp + 1);
    if (top_ == kDeepest) outermost_ = sp;
    if (top_ == 0) {
      ++beyond_;
      return;
    }
    std::uint32_t at = top_ - 1;
    put(at, function, site, sp);
    top_ = at;
    barrier();
    // Again, in case a signal handler has used the slot in between.
    put(at, function, site, sp);
  }

  // This call may be the last thing that the function does, in place of its return: then its own
  // entry is below `sp`.
  void leave(void* function, void* site, std::uint64_t sp) {
    if (beyond_ != 0 && sps_[top_] >= sp) {
      --beyond_;
      return;
    }
    bool is_left = false;
    for (; top_ < kDeepest && sps_[top_] < sp; ++top_) is_left = is(top_, function, site);
    if (!is_left && top_ < kDeepest && is(top_, function, site)) ++top_;
  }

  // Returns where the frame of a function with this stack pointer and frame pointer ends (or a
  // place in it, where that does not tell the end), if it keeps one; 0 if not.
  std::uint64_t frame_end(void* site, std::uint64_t sp, std::uint64_t fp) const {
    if (fp < sp || fp >= outermost_ || fp % sizeof(std::uint64_t) != 0) return 0;
    std::uint64_t end = fp + arch::kSavedFramePointerBelowFrame;
    std::uint64_t returns_to = arch::return_address_at(end - arch::kReturnAddressBelowFrame);
    return returns_to == reinterpret_cast<std::uint64_t>(site) ? end : 0;
  }

  // Returns the calls that a function with this stack pointer is in.
  CallSites live(std::uint64_t sp) {
    drop(sp);
    return {sites_ + top_, sps_ + top_, kDeepest - top_};
  }

 private:
  static constexpr std::uint64_t kLargestFrame = 16384;

  static void barrier() { asm volatile("" ::: "memory"); }

  void put(std::uint32_t at, void* function, void* site, std::uint64_t sp) {
    functions_[at] = function;
    sites_[at] = site;
    sps_[at] = sp;
    barrier();
  }

  bool is(std::uint32_t at, void* function, void* site) const {
    return functions_[at] == function && sites_[at] == site;
  }

  // Drops functions with stack pointers below `sp`, which have been left.
  void drop(std::uint64_t sp) {
    for (; top_ < kDeepest && sps_[top_] < sp; ++top_) beyond_ = 0;
  }

  std::uint32_t top_;
  std::uint32_t beyond_;  // calls that did not fit
  std::uint64_t outermost_;
  std::uint64_t sps_[kDeepest];
  void* sites_[kDeepest];
  void* functions_[kDeepest];
};

// The calls of a thread: on the stack that it runs on, and on those that it ran on last.
class ThreadCalls {
 public:
  CallStack& on(std::uint64_t sp) {
    if (current_ != nullptr && current_->reaches(sp)) [[likely]]
      return *current_;
    return switch_to(sp);
  }

  // Called when a thread takes over the calls of an exited one.
  void clear() {
    current_ = nullptr;
    used_ = 0;
  }

 private:
  static constexpr std::uint32_t kMax = 16;

  CallStack& switch_to(std::uint64_t sp) {
    std::uint32_t known = used_ < kMax ? used_ : kMax;
    for (std::uint32_t i = 0; i < known; ++i)
      if (stacks_[i].reaches(sp)) return *(current_ = &stacks_[i]);
    CallStack& fresh = stacks_[used_++ % kMax];
    fresh.clear(sp);
    return *(current_ = &fresh);
  }

  CallStack* current_;
  std::uint32_t used_;
  CallStack stacks_[kMax];
};

// Returns the live calls of the calling thread, for a function with this stack pointer.
CallSites live_calls(std::uint64_t sp);

}  // namespace reachscan::instrumented
