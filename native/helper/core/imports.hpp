// Which functions the modules of a program import. A core file lacks what only the kernel knows
// about a process; but a program that imports no function to tell the kernel a pointer has told it
// none.
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
  bool complete = true;  // false: some module does not tell
};

// Only names that are wanted are looked for.
Imports find_imports(const std::vector<MapEntry>& entries, const ResidentPages& resident_pages,
                     const Memory& memory, const std::set<std::string>& wanted);

}  // namespace reachscan::helper
