// The external equivalent of malloc_disable: lets threads that are inside the allocator run until
// they leave it, one at a time, while all others stay stopped.
//
// They run freely for some microseconds and are stopped again, until each has been found outside.
// Single steps would leave the allocator sooner, but the kernel does not undo them when the tracer
// is killed: the target would die of a SIGTRAP.
#pragma once

#include "helper/stop/freeze.hpp"
#include "helper/target/memory.hpp"
#include "wire/sweeper_abi.hpp"

namespace reachscan::helper {

struct DrainResult {
  bool quiet;          // no arena is locked and no thread is inside the allocator
  std::uint32_t runs;  // how often a thread was resumed
};

// Leaves the threads' registers up to date in `freeze`. Bounded in time. Throws Failure(kRetry) if
// a waiting signal handler keeps the allocator from becoming quiescent. `short_words`: the target
// is a 32-bit program.
DrainResult drain(Freeze& freeze, const Memory& memory, const abi::QuiesceHint& hint,
                  bool short_words);

}  // namespace reachscan::helper
