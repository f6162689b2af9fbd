// The steps of scanning a process that has ended, or an earlier state of one: its core file.
#pragma once

#include "helper/options.hpp"
#include "helper/stream.hpp"

namespace reachscan::helper {

// Writes every record except the hello. Throws Failure.
void scan_core(const Options& options, Stream& stream);

}  // namespace reachscan::helper
