// The story of one scan.
#pragma once

#include "helper/options.hpp"
#include "helper/stream.hpp"

namespace reachscan::helper {

// Writes every record but the hello. Throws Failure; the target is then as it was.
void scan(const Options& options, Stream& stream);

}  // namespace reachscan::helper
