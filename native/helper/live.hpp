// The method that does not stop the target: reads its memory in several passes while it changes,
// and reports only what every pass found unreferenced and unchanged. Needs no permission except to
// read the target's memory.
#pragma once

#include "helper/options.hpp"
#include "helper/stop/wait.hpp"
#include "helper/stream.hpp"
#include "helper/target/memory.hpp"

namespace reachscan::helper {

// `reason` says why this method was chosen. Throws Failure: kAllocatorBusy if the heap never stayed
// unchanged long enough to be understood.
void scan_live(const std::string& reason, const Options& options, const Memory& memory,
               Stream& stream, Clock::time_point deadline);

}  // namespace reachscan::helper
