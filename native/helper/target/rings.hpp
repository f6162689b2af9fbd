// io_uring requests. A request may contain the program's only copy of a pointer, which comes back
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
  bool told = false;           // the kernel reported the figures below
  std::uint64_t inode = 0;     // of its mappings
  std::uint32_t entries = 0;   // capacity of the ring for requests
  std::uint32_t taken = 0;     // requests that the kernel ever took from the ring
  std::uint32_t answered = 0;  // completions it ever posted
  std::uint32_t waiting = 0;   // requests known to wait for a file
  bool kept = false;           // every request ever made is still in the ring's memory
};

// By descriptor name, or by the start of the mapping if the descriptor was closed.
using Rings = std::map<std::string, Ring>;

// Parses the text of /proc/PID/fdinfo.
Ring parse_ring(const std::string& text);

// Finds out which rings still contain their requests, and adds those that are only mapped.
void read_ring_memory(Rings& rings, const std::vector<MapEntry>& mappings, const Memory& memory);

// Returns a sentence about requests that were in flight at some time between two observations and
// whose words are not in memory; empty if there were none. The rings' contents are read in between.
std::string unread_requests(const Rings& before, const Rings& after);

}  // namespace reachscan::helper
