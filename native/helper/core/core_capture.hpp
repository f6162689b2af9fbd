// Maps the memory of a core file at its original addresses in a process of our own, which the
// sweeper treats as a clone.
#pragma once

#include "helper/capture/snapshot.hpp"
#include "helper/core/core_file.hpp"
#include "helper/core/core_mappings.hpp"

namespace reachscan::helper {

// Throws Failure(kReadMemory, kBuildCopy).
Snapshot capture_core(const CoreFile& core, const CoreMappings& mappings);

}  // namespace reachscan::helper
