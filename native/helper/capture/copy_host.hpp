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

// Returns whether the page is in one of the mappings.
bool occupied(const std::vector<MapEntry>& mappings, std::uint64_t page);

// Returns a stopped child whose only memory is one page of code, where is_wanted(page) is false. It
// has our descriptors and dies with us. Throws Failure(kBuildCopy).
std::unique_ptr<Clone> start_copy_host(const std::function<bool(std::uint64_t page)>& is_wanted);

// Throws Failure(kBuildCopy) if the result of a system call of `host` is an error.
void must(std::int64_t result, const char* what, pid_t host);

}  // namespace reachscan::helper
