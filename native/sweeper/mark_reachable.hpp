// Marks all that the program can still reach, on as many threads as are allowed and worth it.
#pragma once

#include <new>

#include "sweeper/roots.hpp"

namespace reachscan::sweeper {

constexpr uint64_t kBytesPerThread = 8 << 20;  // for less, starting a thread takes longer

inline void work(Marker* marker) {
  marker->finish(trap);
  for (;;) trap();  // there is nothing to return to
}

inline Marker* new_marker(const heaps::Space& space, heaps::BlockMap& blocks, Team& team) {
  return new (map_memory(sizeof(Marker))) Marker(space, blocks, team);
}

inline void start_workers(const heaps::Space& space, heaps::BlockMap& blocks, Team& team,
                          uint64_t heap_bytes) {
  for (uint64_t n = 1; n < control()->marking_threads && n < heap_bytes / kBytesPerThread; ++n) {
    Marker* marker = new_marker(space, blocks, team);
    team.join();
    if (request(abi::Request::kStartThread, reinterpret_cast<uint64_t>(&work),
                reinterpret_cast<uint64_t>(marker)) == 0)
      return team.leave();
  }
}

inline void mark_reachable(const heaps::Space& space, Roots& roots, heaps::BlockMap& blocks,
                           const heaps::Totals& heap) {
  Team team(blocks);
  Marker* marker = new_marker(space, blocks, team);
  marker->expect(roots.size() + heap.bytes);
  start_workers(space, blocks, team, heap.bytes);
  roots.mark(*marker);
  marker->finish([] { request(abi::Request::kNap); });
  request(abi::Request::kEndThreads);
}

}  // namespace reachscan::sweeper
