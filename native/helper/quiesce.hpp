// The outside equivalent of malloc_disable: lets the threads that are inside the allocator step out
// of it while all others stay stopped.
#pragma once

#include "helper/freeze.hpp"
#include "helper/memory.hpp"
#include "wire/sweeper_abi.hpp"

namespace reachscan::helper {

struct DrainResult {
  bool quiet;           // no arena is locked and no thread is in the allocator's code
  std::uint32_t steps;  // instructions stepped
};

// Leaves the threads' registers up to date in `freeze`. Bounded in steps and time.
DrainResult drain(Freeze& freeze, const Memory& memory, const abi::QuiesceHint& hint);

}  // namespace reachscan::helper
