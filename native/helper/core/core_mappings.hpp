// The mappings of a process, as far as its core file describes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "helper/core/core_file.hpp"
#include "helper/core/original_files.hpp"
#include "helper/target/process.hpp"
#include "helper/target/stretches.hpp"

namespace reachscan::helper {

struct CoreMapping {
  MapEntry entry;
  // What the core file holds of it: so many bytes from its start on.
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  // where, in the core file
  // Holds the rest, if the file is what it was then; null if it is not, or is not known to be.
  const OriginalFile* original = nullptr;
  bool of_module = false;   // of a program or library
  bool perms_told = false;  // else it may be read, for all that is known
};

struct CoreMappings {
  std::vector<CoreMapping> all;  // ascending
  std::string program;           // its path; empty if it is not told
  std::vector<std::string> missing_modules;
};

CoreMappings mappings_of(const CoreFile& core, OriginalFiles& originals);

}  // namespace reachscan::helper
