// Words that marking does not follow, since their owners give them no meaning. Which these are is
// known only after blocks have been marked once, so they matter when that is done again.
#pragma once

#include "memory/space.hpp"

namespace reachscan::sweeper {

struct IgnoredWords {
  const void* rules;
  bool (*may_be_in)(const void* rules, uint64_t block);  // rarely wrong
  bool (*have)(const void* rules, uint64_t block, uint64_t slot);
};

}  // namespace reachscan::sweeper
