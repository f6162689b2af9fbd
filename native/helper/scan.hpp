// The steps of one scan.
#pragma once

#include "helper/options.hpp"
#include "helper/stream.hpp"

namespace reachscan::helper {

// Writes every record except the hello. Throws Failure and then leaves the target as it was.
void scan(const Options& options, Stream& stream);

}  // namespace reachscan::helper
