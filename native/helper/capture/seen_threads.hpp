// What can be seen of threads that are not stopped.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <vector>

#include "helper/capture/copy.hpp"
#include "helper/target/seen_thread.hpp"

namespace reachscan::helper {

// Omits threads that exit meanwhile.
std::vector<ObservedThread> observe_threads(pid_t pid);

// Finds each thread's descriptor of the C library, which is its thread pointer, by its shape in the
// copied memory of the process. Omits threads without one.
std::map<pid_t, std::uint64_t> find_descriptors(pid_t pid,
                                                const std::vector<ObservedThread>& threads,
                                                const MemoryCopy& copy);

}  // namespace reachscan::helper
