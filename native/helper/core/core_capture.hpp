// Puts the memory of a core file where it was, into a process of our own. To the sweeper that is a
// clone like any other.
#pragma once

#include "helper/capture/snapshot.hpp"
#include "helper/core/core_file.hpp"
#include "helper/core/core_mappings.hpp"

namespace reachscan::helper {

// Throws Failure(kReadMemory, kBuildCopy).
Snapshot capture_core(const CoreFile& core, const CoreMappings& mappings);

}  // namespace reachscan::helper
