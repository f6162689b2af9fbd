// The process that a copy of the target's memory is put into: a child of ours that does nothing.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace reachscan::helper {

// It waits, stopped, to be remade, and dies with us. Throws Failure(kBuildCopy).
pid_t start_copy_host();

// Where an instruction that makes system calls stands in it, with a breakpoint behind.
std::uint64_t copy_host_gadget();

}  // namespace reachscan::helper
