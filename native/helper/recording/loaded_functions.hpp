// The functions to be hooked of a program that a loader has loaded.
#pragma once

#include <vector>

#include "helper/recording/target_function.hpp"

namespace reachscan::helper {

// Where each one is that calls lead to by its name. Those that are not found are left out.
std::vector<TargetFunction> find_loaded_functions(pid_t pid, const Memory& memory);

}  // namespace reachscan::helper
