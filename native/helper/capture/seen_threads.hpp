// What can be seen of threads that are not stopped.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <vector>

#include "helper/capture/copy.hpp"
#include "helper/target/seen_thread.hpp"

namespace reachscan::helper {

// A thread that ends meanwhile is left out.
std::vector<SeenThread> see_threads(pid_t pid);

// Where each thread's descriptor of the C library is, which is its thread pointer: in the copied
// memory of the process, by its shape. Threads without one are left out.
std::map<pid_t, std::uint64_t> find_descriptors(pid_t pid, const std::vector<SeenThread>& threads,
                                                const MemoryCopy& copy);

}  // namespace reachscan::helper
