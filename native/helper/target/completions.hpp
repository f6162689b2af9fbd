// Completions of io_submit() requests. They stay in memory that the program shares with the kernel
// until io_getevents() fetches them, and contain words of the program.
#pragma once

#include <cstdint>
#include <vector>

#include "helper/target/memory.hpp"
#include "helper/target/process.hpp"

namespace reachscan::helper {

// Adds the words of all pending completions in the context. It also contains completions that
// were fetched earlier; these no longer count.
void add_completions(const MapEntry& context, const Memory& memory,
                     std::vector<std::uint64_t>& words);

}  // namespace reachscan::helper
