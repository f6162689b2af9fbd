// What earlier looks at the target found. A leaked block stays leaked, and nothing can write to it
// any more.
//
// In a running target, only a block that every pass found unreferenced and unchanged is a leak. If
// a block only seemed leaked because a pointer moved while the memory was being read, the next pass
// finds it referenced or changed.
//
// Of several scans, each of one moment, the later ones may find words that lead to a block that an
// earlier one found lost. If it is still the same block, these words may be stale.
#pragma once

#include "sweeper/blocks/digest.hpp"
#include "sweeper/mark/mark.hpp"

namespace reachscan::sweeper {

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
  request(abi::Request::kSuspects, reinterpret_cast<std::uintptr_t>(suspects.begin()), count);
}

inline bool is_same(const abi::Suspect& before, const abi::Suspect& now) {
  return before.start == now.start && before.size == now.size && before.digest == now.digest;
}

// A block that an earlier pass found referenced, changed or missing is not a leak, whatever this
// pass finds; nor is anything it points to.
inline void mark_all_but_suspects(const heaps::Space& space, const BlockMap& blocks,
                                  Marker& marker) {
  const auto* suspects = reinterpret_cast<const abi::Suspect*>(control()->suspects);
  std::size_t next = 0, count = control()->suspect_count;
  blocks.each_unmarked([&](uint64_t block) {
    while (next < count && suspects[next].start < block) ++next;
    bool same = next < count && is_same(suspects[next], suspect_at(space, blocks, block));
    if (!same) marker.mark_value(block);
  });
}

inline bool knows_lost_blocks() {
  return control()->only_suspects == 0 && control()->suspect_count != 0;
}

// Unmarks the blocks that earlier scans found lost, and returns them.
inline List<uint64_t> unmark_lost_before(const heaps::Space& space, BlockMap& blocks) {
  if (!knows_lost_blocks()) return {};
  const auto* lost = reinterpret_cast<const abi::Suspect*>(control()->suspects);
  List<uint64_t> found(map_memory, control()->suspect_count);
  for (std::size_t i = 0; i < control()->suspect_count; ++i) {
    uint64_t block = lost[i].start;
    bool in_use = blocks.may_point(block) && blocks.block_of(block) == block &&
                  blocks.is_marked(block) && is_same(lost[i], suspect_at(space, blocks, block));
    if (!in_use) continue;
    blocks.clear_mark(block);
    found.push(block);
  }
  return found;
}

}  // namespace reachscan::sweeper
