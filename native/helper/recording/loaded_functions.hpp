// Finds the functions to hook in a program that a loader has loaded.
#pragma once

#include <vector>

#include "helper/recording/target_function.hpp"

namespace reachscan::helper {

// Returns the functions that calls by name lead to. Those not found are left out.
std::vector<TargetFunction> find_loaded_functions(pid_t pid, const Memory& memory);

}  // namespace reachscan::helper
