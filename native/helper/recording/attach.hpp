// Inserts a recorder into a running process, and removes it again.
#pragma once

#include "helper/options.hpp"
#include "helper/stream.hpp"

namespace reachscan::helper {

// Write every record except the hello. Throw Failure; the target then continues as before, recorded
// or not.
void attach(const Options& options, Stream& stream);
void detach(const Options& options, Stream& stream);

}  // namespace reachscan::helper
