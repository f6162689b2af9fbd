// What a walker finds on an image of its allocator.
#pragma once

#include <map>
#include <string>

#include "check.hpp"
#include "heaps/heap.hpp"
#include "hosted.hpp"
#include "on_threads.hpp"

namespace reachscan::tests {

struct Found {
  bool present = false;
  std::string reason;                    // "fine" if the walk succeeded
  std::string warning;                   // its code
  std::map<uint64_t, uint64_t> blocks;   // their sizes
  std::map<uint64_t, uint64_t> regions;  // their ends
};

// `in_modules`: blocks may be in pages that hold module data.
template <heaps::Walker Walker>
Found walk_with(const heaps::Space& space, const libc::Threads& threads = {},
                bool in_modules = false) {
  Host host;
  Walker walker(space, threads, sweeper::map_memory);
  Found found;
  found.present = walker.is_present();
  heaps::BlockMap blocks(space, sweeper::map_memory, in_modules);
  heaps::Verdict verdict = walker.enumerate(blocks, alone, 0);
  found.reason = verdict.fine() ? "fine" : verdict.reason;
  if (!verdict.fine()) return found;
  if (walker.warning().code != nullptr) found.warning = walker.warning().code;
  blocks.finish();
  for (const heaps::Region& region : blocks.regions) found.regions[region.start] = region.end;
  uint64_t bytes = 0;
  blocks.each_live([&](uint64_t block) {
    found.blocks[block] = blocks.end_of(block) - block;
    bytes += found.blocks[block];
  });
  CHECK_EQ(walker.totals.blocks, found.blocks.size());
  CHECK_EQ(walker.totals.bytes, bytes);
  return found;
}

}  // namespace reachscan::tests
