// The last stack of a thread. Most of the next one is the same: where it meets the last one, what
// lies further out need only be compared, and its node is known.
//
// It lies in thread-local storage, which is a root. Functions that keep no frame pointer may have
// had the only pointer to a block in that register: what is remembered of it points nowhere.
#pragma once

#include "arch/frames.hpp"

namespace reachscan::recorder {

// A frame, and where its caller's frame pointer was saved; 0 if it is still in its register.
struct MemoFrame {
  arch::Frame frame;
  std::uint64_t saved_fp;
  std::uint32_t node;
};

class StackMemo {
 public:
  static constexpr std::uint32_t kFrames = 64;

  // Of the stack with `count` outer frames of this one and the others further in, none remembered.
  void begin(std::uint32_t outer) { count_ = outer; }

  // The next frame inwards. More than fit are not remembered, and then none is.
  void push(const MemoFrame& frame) {
    if (count_ < kFrames) {
      frames_[count_] = frame;
      frames_[count_].frame.fp = ~frame.frame.fp;
    }
    ++count_;
  }

  // `is_whole`: by return addresses and saved frame pointers alone, each frame leads to the next
  // one, up to the end of the stack.
  void end(bool is_whole) {
    if (!is_whole || count_ > kFrames) count_ = 0;
  }

  std::uint32_t node(std::uint32_t outer) const { return outer == 0 ? 0 : frames_[outer - 1].node; }

  // Looks for frames of the last stack from the inside outwards.
  class Search {
   public:
    explicit Search(const StackMemo& memo) : frames_(memo.frames_), left_(memo.count_) {}

    // How many outer frames of the last stack are this one and what follows it now; 0 if it is none
    // of them. Frames are asked for from the inside outwards, too.
    std::uint32_t outer(const arch::Frame& frame) {
      while (left_ > 0 && frames_[left_ - 1].frame.sp < frame.sp) --left_;
      if (left_ == 0 || !is_same(frames_[left_ - 1].frame, frame)) return 0;
      if (!is_unchanged()) left_ = 0;
      return left_;
    }

   private:
    static bool is_same(const arch::Frame& remembered, const arch::Frame& now) {
      return remembered.pc == now.pc && remembered.sp == now.sp && remembered.fp == ~now.fp;
    }

    // As far as one frame is the same, it leads to the next one by the same two words: what is read
    // is what would be read anyway.
    bool is_unchanged() const {
      for (std::uint32_t i = left_ - 1; i > 0; --i) {
        const arch::Frame& caller = frames_[i - 1].frame;
        std::uint64_t saved = frames_[i].saved_fp;
        if (arch::word_at(caller.sp - arch::kReturnAddressBelowFrame) != caller.pc ||
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
