// Tables that libraries of reachscan keep in the target, each in a mapping of its own between guard
// pages.
#pragma once

#include "sweeper/blob/host.hpp"

namespace reachscan::sweeper {

using heaps::Space;

// Returns the table that starts with this word and has a valid header; null if there is none. Reads
// only memory after a guard page: a process may have tens of thousands of mappings, and the first
// access to each page of the clone faults. In a core file that gdb wrote, the guard page may be
// readable.
template <typename Header>
Header* find_guarded(const Space& space, uint64_t magic) {
  for (const abi::Mapping& m : space) {
    if (&m == space.begin() || !Space::is_written_anonymous(m)) continue;
    const abi::Mapping& guard = (&m)[-1];
    if (guard.end != m.start || (guard.perms & wire::kWrite) != 0 || heaps::word(m.start) != magic)
      continue;
    // Memory that was never written is a separate mapping here.
    auto* header = reinterpret_cast<Header*>(m.start);
    if (is_valid(*header, space.accessible_run(m.start).end - m.start)) return header;
  }
  return nullptr;
}

}  // namespace reachscan::sweeper
