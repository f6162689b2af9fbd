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
  // How many bytes the core file contains, from the start of the mapping.
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  // their position in the core file
  // Holds the rest, if the file is known to be unchanged since then; otherwise null.
  const OriginalFile* original = nullptr;
  bool of_module = false;    // of a program or library
  bool perms_known = false;  // otherwise, only assumed to be readable
};

struct CoreMappings {
  std::vector<CoreMapping> all;  // ascending
  std::string program;           // its path; empty if unknown
  std::vector<std::string> missing_modules;
};

CoreMappings mappings_of(const CoreFile& core, OriginalFiles& originals);

}  // namespace reachscan::helper
