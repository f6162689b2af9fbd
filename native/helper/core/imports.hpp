// Which functions the modules of a program import. A core file lacks what only the kernel knows
// about a process; but a program that imports no function that could pass a pointer to the kernel
// has passed none.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "helper/target/memory.hpp"
#include "helper/target/process.hpp"
#include "helper/target/resident_pages.hpp"

namespace reachscan::helper {

struct Imports {
  std::set<std::string> names;
  bool complete = true;  // false: the imports of some module are unknown
};

// Searches only for the names in `wanted`.
Imports find_imports(const std::vector<MapEntry>& entries, const ResidentPages& resident_pages,
                     const Memory& memory, const std::set<std::string>& wanted);

}  // namespace reachscan::helper
