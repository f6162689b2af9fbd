// Finds the rule for a return address in a module's unwind tables (.eh_frame and its index).
#pragma once

#include "recorder/unwind/rule.hpp"

namespace reachscan::recorder {

// `index` is the address of .eh_frame_hdr, `end` the end of its segment; the tables that it leads
// to are in [start, end). Without an index, .eh_frame is all of [start, end).
struct UnwindTables {
  bool exist() const { return index != 0 || start != 0; }

  std::uint64_t index = 0;
  std::uint64_t start = 0;
  std::uint64_t end = 0;
};

// Returns kUnknown if no table covers the address, or the rule is of a kind that the recorder does
// not support.
Rule find_rule(const UnwindTables& tables, std::uint64_t return_address);

}  // namespace reachscan::recorder
