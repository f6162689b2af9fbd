// Which parts of a mapping have pages that the program wrote to. The rest holds no pointer and is
// not read: some programs map a thousand times what they use, and reading a hole of shared memory
// would fill it for good.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "helper/page_scan.hpp"
#include "helper/process.hpp"

namespace reachscan::helper {

// What is known of all mappings of a process; ascending.
struct Residence {
  std::vector<Stretch> absent;
  std::vector<Stretch> protected_;

  // `shared_pid`: whose page map tells about shared memory, for which a clone has no pages yet.
  void add(pid_t pid, pid_t shared_pid, const MapEntry& entry);
};

// Stretches of a writable mapping without such pages, ascending; those shorter than 64 KiB are left
// out, unless a guard is in them. Empty where the page map cannot be read. For shared memory only
// the target's own page map tells.
std::vector<Stretch> absent_stretches(pid_t pid, const MapEntry& entry);

// Stretches with such pages of a mapping that may be read or written no longer: the program has
// protected them since (as the loader does with what it has relocated), and can undo that. All of
// the mapping where the page map cannot be read.
std::vector<Stretch> protected_stretches(pid_t pid, const MapEntry& entry);

}  // namespace reachscan::helper
