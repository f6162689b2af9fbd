// The method that does not stop the target: its memory is read while it changes, several times
// over, and only what every look found unreferenced and unchanged is reported. Needs no right but
// to read the target's memory.
#pragma once

#include "helper/options.hpp"
#include "helper/stop/wait.hpp"
#include "helper/stream.hpp"
#include "helper/target/memory.hpp"

namespace reachscan::helper {

// `reason` says why this method. Throws Failure: kAllocatorBusy if the heap never held still long
// enough to be understood.
void scan_live(const std::string& reason, const Options& options, const Memory& memory,
               Stream& stream, Clock::time_point deadline);

}  // namespace reachscan::helper
