// Scans a running target several times. Only a block that every pass found unreferenced and
// unchanged is a leak: a leaked block stays leaked, and nothing can write to it any more. If a
// block only seemed leaked because a pointer moved while the memory was being read, the next pass
// finds it referenced or changed.
#pragma once

#include "sweeper/mark/hash.hpp"
#include "sweeper/mark/mark.hpp"

namespace reachscan::sweeper {

// Each step is invertible, so blocks of one size that differ in one word have different digests.
// Skips pages that were never written: reading would create them.
inline uint64_t digest_of(const heaps::Space& space, uint64_t start, uint64_t size) {
  uint64_t digest = size, end = start + size;
  for (uint64_t at = space.skip_absent(start); at + heaps::kWord <= end; at += heaps::kWord) {
    if (at % heaps::kPage == 0) at = space.skip_absent(at);
    if (at + heaps::kWord > end) break;
    digest = (digest ^ heaps::word(at)) * kGolden;
    digest ^= digest >> 32;
  }
  return digest;
}

inline abi::Suspect suspect_at(const heaps::Space& space, const BlockMap& blocks, uint64_t start) {
  uint64_t size = blocks.end_of(start) - start;
  return {start, size, digest_of(space, start, size)};
}

inline void send_suspects(const heaps::Space& space, const BlockMap& blocks) {
  std::size_t count = 0;
  blocks.each_unmarked([&](uint64_t) { ++count; });
  if (count == 0) return;
  heaps::List<abi::Suspect> suspects(map_memory, count);
  blocks.each_unmarked([&](uint64_t block) { suspects.push(suspect_at(space, blocks, block)); });
  request(abi::Request::kSuspects, reinterpret_cast<uint64_t>(suspects.begin()), count);
}

// A block that an earlier pass found referenced, changed or missing is not a leak, whatever this
// pass finds; nor is anything it points to.
inline void mark_all_but_suspects(const heaps::Space& space, const BlockMap& blocks,
                                  Marker& marker) {
  const auto* suspects = reinterpret_cast<const abi::Suspect*>(control()->suspects);
  std::size_t next = 0, count = control()->suspect_count;
  blocks.each_unmarked([&](uint64_t block) {
    while (next < count && suspects[next].start < block) ++next;
    abi::Suspect now = suspect_at(space, blocks, block);
    bool same = next < count && suspects[next].start == block && suspects[next].size == now.size &&
                suspects[next].digest == now.digest;
    if (!same) marker.mark_value(block);
  });
}

}  // namespace reachscan::sweeper
