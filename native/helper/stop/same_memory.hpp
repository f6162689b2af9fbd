// Whether the memory that was opened is still that of the stopped process.
#pragma once

#include "helper/stop/freeze.hpp"
#include "helper/target/memory.hpp"

namespace reachscan::helper {

// Throws Failure(kTargetExeced) if the process has executed another program since its memory was
// opened. If it had shared that memory (vfork()), it is still there, for the other process.
void require_same_memory(Freeze& freeze, const Memory& memory);

}  // namespace reachscan::helper
