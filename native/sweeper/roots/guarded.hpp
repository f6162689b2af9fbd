// Tables that libraries of reachscan keep in the target, each in a mapping of its own between pages
// that may not be used.
#pragma once

#include "sweeper/blob/host.hpp"

namespace reachscan::sweeper {

using heaps::Space;

// The table that begins with this word and whose header is valid; null if there is none. Only
// memory behind such a page is looked into: a process may have tens of thousands of mappings, and
// the first look at a page of the clone takes a fault. In a core file that gdb wrote, the page may
// be read.
template <typename Header>
Header* find_guarded(const Space& space, uint64_t magic) {
  for (const abi::Mapping& m : space) {
    if (&m == space.begin() || !Space::is_written_anonymous(m)) continue;
    const abi::Mapping& guard = (&m)[-1];
    if (guard.end != m.start || (guard.perms & wire::kWrite) != 0 || heaps::word(m.start) != magic)
      continue;
    // What was never written to is a mapping of its own here.
    auto* header = reinterpret_cast<Header*>(m.start);
    if (is_valid(*header, space.accessible_run(m.start).end - m.start)) return header;
  }
  return nullptr;
}

}  // namespace reachscan::sweeper
