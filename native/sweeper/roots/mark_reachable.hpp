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

// Reports progress, unless `expected` is empty. `ignored` may be null.
inline void mark_reachable(const heaps::Space& space, Roots& roots, heaps::BlockMap& blocks,
                           DeferredWords& put_aside, uint64_t heap_bytes,
                           const Marker::Amount& expected, const IgnoredWords* ignored) {
  SharedWorklist worklist(blocks, put_aside);
  uint64_t threads = threads_for(heap_bytes);
  heaps::List<Marker*> markers(map_memory, threads);
  while (markers.size() < threads) markers.push(new_marker(space, blocks, worklist));
  for (Marker* marker : markers) {
    marker->expect({marker == markers[0] ? expected.bytes : 0, expected.bytes_of_block});
    if (ignored != nullptr) marker->ignore(*ignored);
  }
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
