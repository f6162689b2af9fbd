// Which parts of a mapping have pages at all. What a program never touched is zeros, holds no
// pointer and need not be read: some programs map a thousand times what they use.
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

// Whether the kernel's page map tells: files and shared memory may have pages that are not mapped.
bool residence_is_known(const MapEntry& entry);

// Stretches of [entry.start, entry.end) without pages, ascending; those shorter than 64 KiB are
// left out. Empty where the page map cannot be read.
std::vector<Stretch> absent_stretches(pid_t pid, const MapEntry& entry);

}  // namespace reachscan::helper
