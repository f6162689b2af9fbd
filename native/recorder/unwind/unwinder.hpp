// Unwinds the stack of the calling thread.
#pragma once

#include "recorder/stack_memo.hpp"
#include "recorder/unwind/modules.hpp"

namespace reachscan::recorder {

class Unwinder {
 public:
  Unwinder() = default;
  Unwinder(const Modules& modules, const RuleCache& rules, const StackTrie& stacks,
           std::uint64_t main_stack_top, bool frame_pointers_only)
      : modules_(modules),
        rules_(rules),
        stacks_(stacks),
        main_stack_top_(main_stack_top),
        frame_pointers_only_(frame_pointers_only) {}

  Modules& modules() { return modules_; }
  StackTrie& stacks() { return stacks_; }

  // Checks for modules that were loaded or closed. Returns false if that cannot be told now.
  bool update_modules() { return modules_.update(rules_, stacks_); }

  struct Captured {
    std::uint32_t count;  // frames that were written
    std::uint32_t outer;  // frames of the last stack that follow
    bool is_whole;        // as for StackMemo::end()
  };

  // Writes at most `depth` frames from `frame` outwards, up to one where the stack joins the last
  // one.
  Captured capture(arch::Frame frame, const StackMemo& last, MemoFrame* frames,
                   std::uint32_t depth) {
    Limit limit(frame.sp, main_stack_top_);
    StackMemo::Search search(last);
    std::uint32_t count = 0;
    bool is_simple = true, is_guessed = false;
    while (count < depth && frame.pc > 1) {
      std::uint32_t outer = search.outer(frame);
      if (outer != 0 && count + outer <= depth) return {count, outer, is_simple};
      std::uint32_t walked =
          follow_simple_rules(frame, limit, search.sp(), frames + count, depth - count);
      if (walked != 0) {
        count += walked;
        is_guessed = false;
        continue;
      }
      Rule rule;
      if (!rules_.find(frame.pc, rule)) rule = look_up(frame.pc);
      if (is_guessed && rule.kind() == RuleKind::kUnknown) break;
      is_guessed = rule.kind() == RuleKind::kGuess;
      frames[count] = {frame, 0, 0, rule.kind() == RuleKind::kFromFp};
      bool can_continue = step(frame, rule, limit);
      if (can_continue && rule.saved_fp() != 0) frames[count].saved_fp = frame.sp - rule.saved_fp();
      is_simple = is_simple && rule.is_simple();
      if (rule.kind() != RuleKind::kOwn) ++count;
      if (!can_continue) return {count, 0, is_simple};
    }
    return {count, 0, is_simple && frame.pc <= 1};
  }

  // Replaces `frame` by that of its caller. Returns false at the end of the stack.
  bool to_caller(arch::Frame& frame);

  // Returns whether the module of this frame makes its allocations worth recording.
  bool is_from_wanted_module(arch::Frame frame);

  std::uint32_t module_of(std::uint64_t pc) {
    find_module(pc);
    return modules_.find_for_node(pc);
  }

 private:
  // How far up frames may be. Tables are trustworthy, but a frame pointer may have been used for
  // something else by code that keeps none.
  class Limit {
   public:
    Limit(std::uint64_t sp, std::uint64_t main_stack_top) {
      // C libraries keep a thread's descriptor at the upper end of its stack, except for the first
      // thread.
      std::uint64_t thread = arch::thread_pointer();
      if (thread > sp && thread - sp < kLargestStack) {
        end_ = thread;
      } else if (main_stack_top > sp && main_stack_top - sp < kLargestStack) {
        end_ = main_stack_top;
      } else {
        end_ = sp + kUnknownStack;
      }
    }

    bool allows(std::uint64_t sp, std::uint64_t frame_end) const {
      return frame_end > sp && frame_end <= end_ && frame_end % 8 == 0;
    }

   private:
    static constexpr std::uint64_t kLargestStack = std::uint64_t{1} << 30;
    static constexpr std::uint64_t kUnknownStack = std::uint64_t{1} << 20;

    std::uint64_t end_;
  };

  static constexpr Rule kKeepsFramePointer = frame_pointer_rule(RuleKind::kFromFp);

  // For rules from the stack pointer or the frame pointer.
  static bool step_by(Rule rule, arch::Frame& frame, const Limit& limit) {
    std::uint64_t base = rule.kind() == RuleKind::kFromSp ? frame.sp : frame.fp;
    return step_to(base + rule.offset(), rule, frame, limit);
  }

  // Returns false if the frame cannot end there.
  static bool step_to(std::uint64_t frame_end, Rule rule, arch::Frame& frame, const Limit& limit) {
    if (!limit.allows(frame.sp, frame_end)) return false;
    frame.pc = arch::word_at(frame_end - arch::kReturnAddressBelowFrame);
    if (rule.saved_fp() != 0) frame.fp = arch::word_at(frame_end - rule.saved_fp());
    frame.sp = frame_end;
    return true;
  }

  // Walks on while rules are known and simple, and frames are below `end`. Returns how many frames
  // it has written, which are at most `count`.
  std::uint32_t follow_simple_rules(arch::Frame& frame, const Limit& limit, std::uint64_t end,
                                    MemoFrame* frames, std::uint32_t count) const {
    std::uint32_t i = 0;
    do {
      Rule rule;
      if (!rules_.find(frame.pc, rule)) break;
      frames[i].frame = frame;
      // Most functions with a frame pointer are alike. Handled separately, their frames follow from
      // the chain of frame pointers alone, without waiting for the rule to be looked up.
      if (rule.bits() == kKeepsFramePointer.bits()) {
        if (!step_by(kKeepsFramePointer, frame, limit)) break;
        frames[i].saved_fp = frame.sp - kKeepsFramePointer.saved_fp();
        frames[i].needs_fp = true;
      } else {
        if (rule.kind() != RuleKind::kFromSp || !step_by(rule, frame, limit)) break;
        frames[i].saved_fp = rule.saved_fp() == 0 ? 0 : frame.sp - rule.saved_fp();
        frames[i].needs_fp = false;
      }
    } while (++i < count && frame.sp < end);
    return i;
  }

  // Replaces `frame` by that of its caller. Returns false at the end of the stack.
  bool step(arch::Frame& frame, Rule rule, Limit& limit) const {
    switch (rule.kind()) {
      case RuleKind::kFromSp:
      case RuleKind::kFromFp:
      case RuleKind::kGuess:
      case RuleKind::kOwn:
        return step_by(rule, frame, limit);
      case RuleKind::kSavedAtFp:
        if (!limit.allows(frame.sp, frame.fp)) return false;
        return step_to(arch::word_at(frame.fp - rule.offset()), rule, frame, limit);
      case RuleKind::kSignal:
        frame = arch::interrupted_frame(frame.sp);
        limit = Limit(frame.sp, main_stack_top_);
        return true;
      default:
        return false;
    }
  }

  Rule look_up(std::uint64_t pc);
  std::uint32_t find_module(std::uint64_t pc);

  Modules modules_;
  RuleCache rules_;
  StackTrie stacks_;
  std::uint64_t main_stack_top_ = 0;
  bool frame_pointers_only_ = false;
};

}  // namespace reachscan::recorder
