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
        frame_pointers_only_(frame_pointers_only) {
    if (!arch::kRecordEndsFrame) own_tables_ = own_unwind_tables();
  }

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
    Walk walk(frame.sp, main_stack_top_);
    StackMemo::Search search(last);
    std::uint32_t count = 0;
    bool is_simple = true, is_guessed = false;
    while (count < depth && frame.pc > 1) {
      std::uint32_t outer = search.outer(frame);
      if (outer != 0 && count + outer <= depth) return {count, outer, is_simple};
      std::uint32_t walked =
          follow_simple_rules(frame, walk, search.sp(), frames + count, depth - count);
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
      bool can_continue = step(frame, rule, walk);
      if (can_continue) note_saved(frames[count], rule, frame.sp);
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

  // Python functions are in none, and it takes long to look for modules that were loaded meanwhile.
  std::uint32_t module_of(std::uint64_t pc) {
    if (is_python(pc)) return 0;
    find_module(pc);
    return modules_.find_for_node(pc);
  }

 private:
  // What is known besides a frame: how far up others may be, and its link register if a signal has
  // interrupted it. Tables are trustworthy, but a frame pointer may have been used for something
  // else by code that keeps none.
  class Walk {
   public:
    Walk(std::uint64_t sp, std::uint64_t main_stack_top, std::uint64_t link = 0) : link_(link) {
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

    // Returns 0 if it is not known. No caller of the frame has it.
    std::uint64_t take_link() {
      std::uint64_t link = link_;
      link_ = 0;
      return link;
    }

   private:
    static constexpr std::uint64_t kLargestStack = std::uint64_t{1} << 30;
    static constexpr std::uint64_t kUnknownStack = std::uint64_t{1} << 20;

    std::uint64_t end_;
    std::uint64_t link_;
  };

  static constexpr Rule kKeepsFramePointer = frame_pointer_rule(RuleKind::kFromFp);
  // For its own hooks, which keep a frame pointer.
  static constexpr Rule kOwnRule =
      arch::kRecordEndsFrame ? frame_pointer_rule(RuleKind::kOwn) : Rule(RuleKind::kOwn);

  static bool keeps_frame_pointer(Rule rule) {
    if (arch::kRecordEndsFrame) return rule.bits() == kKeepsFramePointer.bits();
    return rule.saved_fp() == rule.return_address() + 8;  // a frame record
  }

  static void note_saved(MemoFrame& left, Rule rule, std::uint64_t frame_end) {
    left.saved_fp = rule.saved_fp() == 0 ? 0 : frame_end - rule.saved_fp();
    left.return_slot = arch::ReturnSlot(rule.return_address());
  }

  // For rules from the stack pointer or the frame pointer.
  static bool step_by(Rule rule, arch::Frame& frame, Walk& walk) {
    std::uint64_t base = rule.kind() == RuleKind::kFromSp ? frame.sp : frame.fp;
    return step_to(base + rule.offset(), rule, frame, walk);
  }

  // Returns false if the frame cannot end there.
  static bool step_to(std::uint64_t frame_end, Rule rule, arch::Frame& frame, Walk& walk) {
    if (rule.return_address() == 0) return step_by_link(frame_end, frame, walk);
    if (!walk.allows(frame.sp, frame_end)) return false;
    frame.pc = arch::return_address_at(frame_end - rule.return_address());
    if (rule.saved_fp() != 0) frame.fp = arch::word_at(frame_end - rule.saved_fp());
    frame.sp = frame_end;
    walk.take_link();
    return true;
  }

  // Such a function has not called another one, and may have no frame at all.
  static bool step_by_link(std::uint64_t frame_end, arch::Frame& frame, Walk& walk) {
    std::uint64_t link = walk.take_link();
    if (link == 0 || (frame_end != frame.sp && !walk.allows(frame.sp, frame_end))) return false;
    frame.pc = link;
    frame.sp = frame_end;
    return true;
  }

  // Where a frame pointer does not tell the end of the frame, the recorder's own tables do.
  bool step_over_own(arch::Frame& frame, Rule rule, Walk& walk) const {
    if (!arch::kRecordEndsFrame) rule = find_rule(own_tables_, frame.pc);
    return rule.kind() != RuleKind::kUnknown && step_by(rule, frame, walk);
  }

  // Walks on while rules are known and simple, and frames are below `end`. Returns how many frames
  // it has written, which are at most `count`.
  std::uint32_t follow_simple_rules(arch::Frame& frame, Walk& walk, std::uint64_t end,
                                    MemoFrame* frames, std::uint32_t count) const {
    std::uint32_t i = 0;
    do {
      Rule rule;
      if (!rules_.find(frame.pc, rule)) break;
      frames[i].frame = frame;
      // Most functions with a frame pointer are alike. Handled separately, their frames follow from
      // the chain of frame pointers alone, without waiting for the rule to be looked up.
      if (arch::kRecordEndsFrame && rule.bits() == kKeepsFramePointer.bits()) {
        if (!step_by(kKeepsFramePointer, frame, walk)) break;
        note_saved(frames[i], kKeepsFramePointer, frame.sp);
        frames[i].needs_fp = true;
      } else {
        if (rule.kind() != RuleKind::kFromSp || !step_by(rule, frame, walk)) break;
        note_saved(frames[i], rule, frame.sp);
        frames[i].needs_fp = false;
      }
    } while (++i < count && frame.sp < end);
    return i;
  }

  // Replaces `frame` by that of its caller. Returns false at the end of the stack.
  bool step(arch::Frame& frame, Rule rule, Walk& walk) const {
    switch (rule.kind()) {
      case RuleKind::kFromSp:
      case RuleKind::kFromFp:
      case RuleKind::kGuess:
        return step_by(rule, frame, walk);
      case RuleKind::kOwn:
        return step_over_own(frame, rule, walk);
      case RuleKind::kSavedAtFp:
        if (!walk.allows(frame.sp, frame.fp)) return false;
        return step_to(arch::word_at(frame.fp - rule.offset()), rule, frame, walk);
      case RuleKind::kSignal: {
        std::uint64_t link = arch::interrupted_link(frame.sp);
        frame = arch::interrupted_frame(frame.sp);
        walk = Walk(frame.sp, main_stack_top_, link);
        return true;
      }
      default:
        return false;
    }
  }

  Rule look_up(std::uint64_t pc);
  std::uint32_t find_module(std::uint64_t pc);

  Modules modules_;
  RuleCache rules_;
  StackTrie stacks_;
  UnwindTables own_tables_;
  std::uint64_t main_stack_top_ = 0;
  bool frame_pointers_only_ = false;
};

}  // namespace reachscan::recorder
