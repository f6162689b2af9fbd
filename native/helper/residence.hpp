// Which parts of a mapping have pages that the program wrote to. The rest holds no pointer and is
// not read: some programs map a thousand times what they use, and reading a hole of shared memory
// would fill it for good.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "helper/process.hpp"

namespace reachscan::helper {

struct Stretch {
  std::uint64_t start;
  std::uint64_t end;
};

// Stretches of a writable mapping without such pages, ascending; those shorter than 64 KiB are left
// out. Empty where the page map cannot be read. For shared memory only the target's own page map
// tells.
std::vector<Stretch> absent_stretches(pid_t pid, const MapEntry& entry);

}  // namespace reachscan::helper
