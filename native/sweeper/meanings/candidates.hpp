// The blocks that nothing points to, and for each the word that is the best evidence against a
// leak.
#pragma once

#include "memory/block_map.hpp"
#include "sweeper/mark/hash.hpp"
#include "sweeper/mark/scratch.hpp"

namespace reachscan::sweeper {

using heaps::BlockMap;
using heaps::List;

// Why a leak may be a false one, the strongest reason first. Certain evidence of use outranks them
// all.
constexpr uint32_t kRanks[] = {0,
                               wire::kLostBefore,
                               wire::kOnePastTheEnd,
                               wire::kTagged,
                               wire::kMangled,
                               wire::kRelative,
                               wire::kNumber,
                               wire::kUnaligned,
                               wire::kStaleWord,
                               wire::kSignalStack};
constexpr uint32_t kInUse = 0;
constexpr uint32_t kRankCount = sizeof kRanks / sizeof kRanks[0];

constexpr uint32_t rank_of(uint32_t reason) {
  uint32_t rank = 1;
  while (kRanks[rank] != reason) ++rank;
  return rank;
}

// A word that may mean a block in another form than a pointer.
struct Sighting {
  static constexpr uint32_t kSomewhere = ~0u;  // the index of a word in memory, its slot unknown

  uint64_t slot;  // 0: word `index` of those outside memory
  uint64_t value;
  uint32_t index;
  uint32_t form;   // wire::Doubt
  uint32_t rank;   // strength of the evidence
  uint32_t about;  // the candidate it means; its descendants refer to it, too
};

class Candidates {
 public:
  static constexpr uint32_t kNone = ~0u;

  Candidates(const BlockMap& blocks, std::size_t unmarked)
      : blocks_(map_memory, unmarked),
        suggested_(map_memory, unmarked),
        sightings_(unmarked),
        buckets_(blocks.buckets()) {
    blocks.each_unmarked([&](uint64_t block) {
      blocks_.push(block);
      buckets_[blocks.cluster_of(block)->bucket_of(block)] = 1;
      uint64_t end = end_slot(heaps::align_up(blocks.end_of(block), heaps::kWord));
      ends_[end / 64] |= 1ull << end % 64;
    });
  }

  std::size_t count() const { return blocks_.size(); }
  uint64_t block(uint32_t candidate) const { return blocks_[candidate]; }

  // Calls visit(block) for each candidate.
  template <typename Visit>
  void each(Visit visit) const {
    for (uint64_t block : blocks_) visit(block);
  }

  // Returns kNone if the block is not a candidate.
  uint32_t find(uint64_t block) const {
    std::size_t at = heaps::lower_bound(blocks_, block);
    return at < blocks_.size() && blocks_[at] == block ? static_cast<uint32_t>(at) : kNone;
  }

  // Returns null if no word was seen.
  const Sighting* sighting(uint32_t candidate) const {
    const Sighting& seen = sightings_[candidate];
    return seen.form != 0 ? &seen : nullptr;
  }

  // Of several words, the strongest evidence counts; of equal ones, the one at the lowest address
  // that is known, no matter which thread reports first.
  void suggest(uint32_t candidate, const Sighting& found) {
    Sighting& seen = sightings_[candidate];
    if (seen.form == 0) {
      suggested_.push(candidate);
    } else if (seen.rank < found.rank ||
               (seen.rank == found.rank && seen.slot - 1 <= found.slot - 1)) {
      return;
    }
    seen = found;
  }

  // Unsorted; grows while words are found.
  const List<uint32_t>& suggested() const { return suggested_; }

  // Returns whether a candidate may start in the bucket around an address, or in the preceding one.
  bool any_near(const BlockMap& blocks, uint64_t address) const {
    return any_in_bucket(blocks, address) || any_in_bucket(blocks, address - heaps::kBucket);
  }

  // Returns whether a candidate may end at an address, rounded up to a word: a cheap test that few
  // other addresses pass.
  bool may_end_at(uint64_t address) const {
    uint64_t slot = end_slot(address);
    return (ends_[slot / 64] >> slot % 64 & 1) != 0;
  }

  // Returns a hull of all candidates, as two ranges like those of the whole heap.
  heaps::Hulls hulls(const BlockMap& blocks) const {
    heaps::Hulls all = blocks.hulls();
    heaps::Range low = hull_within(all.low, blocks), high = hull_within(all.high, blocks);
    if (low.start == low.end) low = high;
    if (high.start == high.end) high = low;
    return {low, high};
  }

 private:
  static constexpr unsigned kEndBits = 21;

  static uint64_t end_slot(uint64_t end) { return mixed(0, end) >> (64 - kEndBits); }

  bool any_in_bucket(const BlockMap& blocks, uint64_t address) const {
    const heaps::Cluster* cluster = blocks.cluster_of(address);
    return cluster != nullptr && buckets_[cluster->bucket_of(address)] != 0;
  }

  heaps::Range hull_within(heaps::Range part, const BlockMap& blocks) const {
    heaps::Range hull{0, 0};
    for (uint64_t block : blocks_) {
      if (!part.contains(block)) continue;
      if (hull.start == hull.end) hull.start = block;
      hull.end = blocks.end_of(block);
    }
    return hull;
  }

  List<uint64_t> blocks_;  // sorted by address
  List<uint32_t> suggested_;
  Scratch<Sighting> sightings_;
  Scratch<uint8_t> buckets_;                       // 1: a candidate starts there
  Scratch<uint64_t> ends_{(1u << kEndBits) / 64};  // a bit for each hash of an end
};

}  // namespace reachscan::sweeper
