// Takes a stack, frame by frame.
#include "recorder/unwind/unwinder.hpp"

namespace reachscan::recorder {

Rule Unwinder::look_up(std::uint64_t pc) {
  std::uint32_t module = modules_.find(pc);
  if (module == 0) {
    update_modules();
    module = modules_.find(pc);
  }
  Rule rule;
  if (module != 0) {
    const UnwindTables& tables = modules_.unwind_tables(module);
    rule = find_rule(tables, pc);
    if (rule.kind() == RuleKind::kUnknown && arch::ends_handler(pc)) rule = Rule(RuleKind::kSignal);
    // The tables tell which functions keep one.
    bool keeps_frame_pointer = rule.bits() == frame_pointer_rule(RuleKind::kFromFp).bits();
    if (frame_pointers_only_ && !keeps_frame_pointer && rule.kind() != RuleKind::kSignal) rule = {};
    if (rule.kind() == RuleKind::kUnknown && tables.index == 0)
      rule = frame_pointer_rule(RuleKind::kGuess);
    if (modules_.row(module).start == own_base()) rule = frame_pointer_rule(RuleKind::kOwn);
  }
  rules_.put(pc, rule);
  return rule;
}

}  // namespace reachscan::recorder
