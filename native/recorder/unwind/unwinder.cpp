// Unwinds a stack, frame by frame.
#include "recorder/unwind/unwinder.hpp"

namespace reachscan::recorder {

std::uint32_t Unwinder::find_module(std::uint64_t pc) {
  std::uint32_t module = modules_.find(pc);
  if (module != 0) return module;
  update_modules();
  return modules_.find(pc);
}

bool Unwinder::to_caller(arch::Frame& frame) {
  Walk walk(frame.sp, main_stack_top_);
  Rule rule;
  if (!rules_.find(frame.pc, rule)) rule = look_up(frame.pc);
  return step(frame, rule, walk);
}

bool Unwinder::is_from_wanted_module(arch::Frame frame) {
  constexpr int kMaxFrames = 16;  // of the C++ library
  Walk walk(frame.sp, main_stack_top_);
  for (int i = 0; i < kMaxFrames && frame.pc > 1; ++i) {
    Calls calls = modules_.calls(find_module(frame.pc));
    if (calls != Calls::kOfCaller) return calls == Calls::kWanted;
    Rule rule;
    if (!rules_.find(frame.pc, rule)) rule = look_up(frame.pc);
    if (!step(frame, rule, walk)) return false;
  }
  return false;
}

// The tables of a module may be read if it is current: it has a frame here, so it stays loaded.
// While the loader changes its list, what is found is not remembered.
Rule Unwinder::look_up(std::uint64_t pc) {
  Rule rule;
  std::uint32_t module = 0;
  bool is_known = is_own_code(pc);
  if (is_known) {
    rule = kOwnRule;
  } else {
    module = modules_.find(pc);
    is_known = (module != 0 && modules_.is_current(module)) || update_modules();
    module = is_known ? modules_.find(pc) : 0;
  }
  if (module != 0) {
    const UnwindTables& tables = modules_.unwind_tables(module);
    rule = find_rule(tables, pc);
    if (rule.kind() == RuleKind::kUnknown && arch::ends_handler(pc)) rule = Rule(RuleKind::kSignal);
    // The tables show which functions keep a frame pointer.
    if (frame_pointers_only_ && !keeps_frame_pointer(rule) && rule.kind() != RuleKind::kSignal)
      rule = {};
    // Guessed frames are followed by frames that start where they end.
    if (arch::kRecordEndsFrame && rule.kind() == RuleKind::kUnknown && !tables.exist())
      rule = frame_pointer_rule(RuleKind::kGuess);
  }
  if (is_known) rules_.put(pc, rule);
  return rule;
}

}  // namespace reachscan::recorder
