// Marks everything that the program can still reach, on as many threads as are allowed and
// worthwhile.
#pragma once

#include <new>

#include "sweeper/mark/parallel_run.hpp"
#include "sweeper/roots/roots.hpp"

namespace reachscan::sweeper {

inline Marker* new_marker(const heaps::Space& space, heaps::BlockMap& blocks,
                          SharedWorklist& worklist) {
  return new (map_memory(sizeof(Marker))) Marker(space, blocks, worklist);
}

// Reports progress, unless `expected`, the number of bytes to scan, is 0. `ignored` may be null.
inline void mark_reachable(const heaps::Space& space, Roots& roots, heaps::BlockMap& blocks,
                           DeferredWords& put_aside, uint64_t heap_bytes, uint64_t expected,
                           const IgnoredWords* ignored) {
  SharedWorklist worklist(blocks, put_aside);
  uint64_t threads = threads_for(heap_bytes);
  heaps::List<Marker*> markers(map_memory, threads);
  while (markers.size() < threads) markers.push(new_marker(space, blocks, worklist));
  markers[0]->expect(expected);
  if (ignored != nullptr)
    for (Marker* marker : markers) marker->ignore(*ignored);
  ParallelRun(threads, [&](unsigned index) {
    Marker& marker = *markers[index];
    if (index == 0) {
      roots.mark(marker);
      marker.finish([] { request(abi::Request::kNap); });
    } else {
      marker.join();
      marker.finish(trap);
    }
  }).run();
  for (Marker* marker : markers) marker->~Marker();
}

}  // namespace reachscan::sweeper
