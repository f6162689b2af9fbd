// Which functions the modules of a program take from others. What only the kernel knows of a
// process is in no core file; what the program never calls has made the kernel know nothing.
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
