// Puts a recorder into a running process, and takes it out again.
#pragma once

#include "helper/options.hpp"
#include "helper/stream.hpp"

namespace reachscan::helper {

// Write every record but the hello. Throw Failure; the target then goes on as before, recorded or
// not.
void attach(const Options& options, Stream& stream);
void detach(const Options& options, Stream& stream);

}  // namespace reachscan::helper
