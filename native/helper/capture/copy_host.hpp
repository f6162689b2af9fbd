// The process that receives a copy of the target's memory: a child of ours that does nothing.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "helper/capture/clone.hpp"
#include "helper/target/process.hpp"

namespace reachscan::helper {

// Whether the page is in one of the mappings.
bool occupied(const std::vector<MapEntry>& mappings, std::uint64_t page);

// It waits, stopped, with no memory but one page of code, where is_wanted(page) is false. It has
// the descriptors that we have, and dies with us. Throws Failure(kBuildCopy).
std::unique_ptr<Clone> start_copy_host(const std::function<bool(std::uint64_t page)>& is_wanted);

// Throws Failure(kBuildCopy) if the result of one of its system calls is an error.
void must(std::int64_t result, const char* what, pid_t host);

}  // namespace reachscan::helper
