// Requests of io_uring. A request may carry the program's only copy of a pointer, which comes back
// with the completion.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "helper/target/memory.hpp"
#include "helper/target/process.hpp"

namespace reachscan::helper {

struct Ring {
  bool told = false;           // the kernel gave the figures below
  std::uint64_t inode = 0;     // of its mappings
  std::uint32_t entries = 0;   // requests for which the ring has room
  std::uint32_t taken = 0;     // requests that the kernel took out of the ring, ever
  std::uint32_t answered = 0;  // answers it gave, ever
  std::uint32_t waiting = 0;   // requests known to wait for a file
  bool kept = false;           // every request that was ever made is still in the ring's memory
};

// By the name of the descriptor, or the start of the mapping of one that was closed.
using Rings = std::map<std::string, Ring>;

// From the text of /proc/PID/fdinfo.
Ring parse_ring(const std::string& text);

// Finds out which rings still have their requests, and adds those that are only mapped.
void look_at_ring_memory(Rings& rings, const std::vector<MapEntry>& mappings, const Memory& memory);

// Whether requests were in flight, some time between two looks, whose words are in no memory; then
// a sentence about them, otherwise nothing. What the rings hold is read in between.
std::string unread_requests(const Rings& before, const Rings& after);

}  // namespace reachscan::helper
