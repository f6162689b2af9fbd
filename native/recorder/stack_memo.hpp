// The last stack of a thread. Most of the next one is the same: where it meets the last one, the
// outer frames need only be compared, and their node is known.
//
// It is in thread-local storage, which is a root. Functions without a frame pointer may have had
// the only pointer to a block in that register, so its remembered value is complemented and points
// nowhere.
#pragma once

#include "arch/frames.hpp"

namespace reachscan::recorder {

// A frame, and how its caller's follows from it.
struct MemoFrame {
  arch::Frame frame;
  std::uint64_t saved_fp;  // where the caller's frame pointer was saved; 0: it is in its register
  std::uint32_t node;
  bool needs_fp;  // whether the frame pointer leads to the caller; in a memo, to some outer frame
  [[no_unique_address]] arch::ReturnSlot return_slot = {};
};

class StackMemo {
 public:
  static constexpr std::uint32_t kFrames = 64;

  // Starts a stack that shares the `outer` outer frames of this one; its inner frames are not
  // stored yet.
  void begin(std::uint32_t outer) { count_ = outer; }

  // Adds the next inner frame. If there are too many, none is remembered. Frame pointers that lead
  // nowhere may change: functions that keep none use the register for other things.
  void push(const MemoFrame& frame) {
    if (count_ < kFrames) {
      MemoFrame& added = frames_[count_];
      bool caller_needs_fp = count_ > 0 && frames_[count_ - 1].needs_fp;
      added = frame;
      added.frame.fp = ~frame.frame.fp;
      if (!caller_needs_fp) added.saved_fp = 0;
      if (caller_needs_fp && frame.saved_fp == 0) added.needs_fp = true;
    }
    ++count_;
  }

  // `is_whole`: return addresses and saved frame pointers alone lead from each frame to the next,
  // up to the end of the stack.
  void end(bool is_whole) {
    if (!is_whole || count_ > kFrames) count_ = 0;
  }

  std::uint32_t node(std::uint32_t outer) const { return outer == 0 ? 0 : frames_[outer - 1].node; }

  // Searches for frames of the last stack, from the inside outwards.
  class Search {
   public:
    explicit Search(const StackMemo& memo) : frames_(memo.frames_), left_(memo.count_) {}

    // Returns how many outer frames of the last stack, starting with this one, are still the same;
    // 0 if the frame is not among them. Frames must be passed from the inside outwards.
    std::uint32_t outer(const arch::Frame& frame) {
      while (left_ > 0 && frames_[left_ - 1].frame.sp < frame.sp) --left_;
      if (left_ == 0 || !is_same(frames_[left_ - 1], frame)) return 0;
      if (!is_unchanged()) left_ = 0;
      return left_;
    }

    // The stack pointer of the next frame of the last stack: no frame below it can be among them.
    std::uint64_t sp() const {
      return left_ == 0 ? ~std::uint64_t{0} : frames_[left_ - 1].frame.sp;
    }

   private:
    static bool is_same(const MemoFrame& remembered, const arch::Frame& now) {
      return remembered.frame.pc == now.pc && remembered.frame.sp == now.sp &&
             (!remembered.needs_fp || remembered.frame.fp == ~now.fp);
    }

    // While a frame is the same, it leads to the next one by the same words: only words that
    // unwinding would read anyway are read.
    bool is_unchanged() const {
      for (std::uint32_t i = left_ - 1; i > 0; --i) {
        const arch::Frame& caller = frames_[i - 1].frame;
        std::uint64_t saved = frames_[i].saved_fp;
        std::uint64_t returned = frames_[i].return_slot.address(caller.sp);
        if (arch::return_address_at(returned) != caller.pc ||
            (saved != 0 && arch::word_at(saved) != ~caller.fp))
          return false;
      }
      return true;
    }

    const MemoFrame* frames_;
    std::uint32_t left_;
  };

 private:
  std::uint32_t count_ = 0;
  MemoFrame frames_[kFrames] = {};  // outermost first
};

}  // namespace reachscan::recorder
