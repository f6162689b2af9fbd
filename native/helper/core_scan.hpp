// The story of a scan of a process that is no more, or as it was: of its core file.
#pragma once

#include "helper/options.hpp"
#include "helper/stream.hpp"

namespace reachscan::helper {

// Writes every record but the hello. Throws Failure.
void scan_core(const Options& options, Stream& stream);

}  // namespace reachscan::helper
