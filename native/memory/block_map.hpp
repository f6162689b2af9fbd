// Where the live blocks are, and which of them are marked: two bits for each granule.
//
//   start mark
//     0    0    inside a block, or no heap at all
//     1    0    a live block starts here
//     1    1    a live block starts here and has been reached
//     0    1    a boundary: what starts here is no live block
//
// A block ends where the next start or boundary is, less the bytes that belong to the allocator.
//
// Marking may put a block off, that is, reach it but not yet scan it (a grey block). If blocks have
// two granules at least (Coarse), no boundary is right behind a start, so that is what the mark
// there says. If a block may be one granule (Fine), the mark there is the neighbour's, so each pair
// of words has a third one. Allocators without small slots need not pay for that: a map is coarse
// unless one of them in the process asks for a fine one (Walker::kGrain).
//
// The words of starts and marks alternate, so that one cache line answers a look-up. The bitmaps
// span all anonymous memory of the process but are backed only where heaps are: 1/64 of their size
// if coarse.
#pragma once

#include "memory/clusters.hpp"
#include "memory/leftover.hpp"
#include "memory/regions.hpp"

namespace reachscan::heaps {

enum class GrainSize : uint8_t { kCoarse, kFine };

class BlockMap {
 public:
  BlockMap(const Space& space, MapMemory map, GrainSize size = GrainSize::kCoarse)
      : regions(map), clusters_(space), is_fine_(size == GrainSize::kFine) {
    for (Cluster& cluster : clusters_) {
      cluster.first_bucket = buckets_;
      buckets_ += cluster.length / kBucket + 1;
      by_grain(is_fine_, [&cluster, map](auto grain) { cluster.allocate<decltype(grain)>(map); });
    }
  }

  void add_live(uint64_t address) { set(address, true, false); }
  void add_boundary(uint64_t address) { set(address, false, true); }

  // Blocks and boundaries of the kSpan bytes from `base` on, a bit for each kGranule.
  void add_edges(uint64_t base, uint64_t starts, uint64_t boundaries) {
    if (!is_fine_) return heaps::add_edges(pair_at(base), starts, boundaries);
    heaps::add_edges(pair_at(base), spread(starts), spread(boundaries));
    heaps::add_edges(pair_at(base + kSpan / 2), spread(starts >> 32), spread(boundaries >> 32));
  }

  // Forgets all blocks and boundaries in [from, to).
  void drop_edges(uint64_t from, uint64_t to) {
    by_grain(is_fine_, [this, from, to](auto grain) { drop_edges_in<decltype(grain)>(from, to); });
  }

  // A block that turned out to be in a free list or the allocator's own.
  void drop_live(uint64_t address) { add_boundary(address); }

  bool is_live(uint64_t address) const {
    return by_grain(is_fine_, [this, address](auto grain) {
      using Grain = decltype(grain);
      if (address % Grain::kGranule != 0) return false;
      const Cluster* cluster = cluster_of(address);
      return cluster != nullptr && cluster->is_start<Grain>(address);
    });
  }

  // Reads ahead what is_live() will look at.
  void fetch_edges(uint64_t address) const {
    if (const Cluster* cluster = cluster_of(address)) fetch_edges(*cluster, address);
  }
  [[gnu::always_inline]] void fetch_edges(const Cluster& cluster, uint64_t address) const {
    fetch(pair_in(cluster, address));
  }

  // The same for a whole bucket.
  void fetch_bucket(const Cluster& cluster, uint64_t bucket) const {
    by_grain(is_fine_, [&cluster, bucket](auto grain) {
      using Grain = decltype(grain);
      for (uint64_t at = bucket; at < bucket + kBucket; at += kPairsInLine * Grain::kSpan)
        fetch(cluster.pair<Grain>(at));
    });
  }

  // The first live block from `address` on, which must be before some block or boundary.
  uint64_t first_live(uint64_t address) const {
    return by_grain(is_fine_, [this, address](auto grain) {
      using Grain = decltype(grain);
      uint64_t at = address;
      while (!is_live(at)) at = cluster_of(at)->next_edge<Grain>(at + Grain::kGranule);
      return at;
    });
  }

  // The first block or boundary in [address, last], 0 if there is none.
  uint64_t next_edge(uint64_t address, uint64_t last) const {
    return by_grain(is_fine_, [this, address, last](auto grain) {
      return cluster_of(address)->next_edge<decltype(grain)>(address, last);
    });
  }

  bool is_marked(uint64_t address) const {
    return by_grain(is_fine_, [this, address](auto grain) {
      using Grain = decltype(grain);
      const uint64_t* pair = cluster_of(address)->pair<Grain>(address);
      return (relaxed(pair + 1) >> bit_of<Grain>(address) & 1) != 0;
    });
  }

  void clear_mark(uint64_t address) {
    by_grain(is_fine_, [this, address](auto grain) {
      using Grain = decltype(grain);
      cluster_of(address)->pair<Grain>(address)[1] &= ~(1ull << bit_of<Grain>(address));
    });
  }

  // Whether a word can be a pointer into a heap at all; the cheap test that most words fail.
  bool may_point(uint64_t value) const { return cluster_of(value) != nullptr; }

  // All that may_point() accepts lies in here: two comparisons sort out most words.
  Range hull() const { return clusters_.hull(); }

  // The same as two ranges: for words of which more than a few are in the hull.
  Hulls hulls() const { return clusters_.hulls(); }

  // The bitmaps that cover `address`, null if it cannot be one in a heap. To be found once and
  // handed on, as it takes a search.
  const Cluster* cluster_of(uint64_t address) const { return clusters_.of(address); }

  // The pair of words for `address`. The end of a cluster's last region has no cluster of its own;
  // it shares the spare pair.
  uint64_t* pair_at(uint64_t address) const {
    const Cluster* cluster = cluster_of(address);
    if (cluster == nullptr) cluster = cluster_of(address - 1);
    return pair_in(*cluster, address);
  }

  // How many buckets there are in all clusters; in how many of them regions are. After finish().
  uint64_t buckets() const { return buckets_; }
  uint64_t inhabited_buckets() const { return inhabited_buckets_; }

  // The live block that `value` points into, wherever in it; 0 if none. One past the end is not in.
  uint64_t block_of(uint64_t value) const {
    const Cluster* cluster = cluster_of(value);
    return cluster == nullptr ? 0 : block_in(*cluster, value | kElsewhere);
  }

  // Whether the word at `slot` of the block that begins at `holder` may be what a free list left
  // there. These lists point to chunks, so it looks like a pointer to the last word of a block, the
  // one before the chunk.
  bool is_leftover(uint64_t holder, uint64_t slot, uint64_t value) const {
    if (slot - holder >= kHeadBytes) return false;
    const Cluster* cluster = cluster_of(value);
    return cluster != nullptr && block_in(*cluster, value) == kLeftover;
  }

  // Marks the live block that `value` points into. Returns its start if it was not marked before.
  template <bool kShared = false>
  uint64_t mark(uint64_t value) {
    const Cluster* cluster = cluster_of(value);
    return cluster == nullptr ? 0 : claim<kShared>(*cluster, value | kElsewhere).start;
  }

  // Marks the live block that `value` points into. Returns where its usable bytes are; nowhere if
  // it was marked before, or there is none. Starts at kLeftover: nothing is done, as the value may
  // be left behind by a free list. Shared: other threads do it too, and exactly one of them gets
  // the block.
  template <bool kShared>
  [[gnu::always_inline]] Range claim(const Cluster& cluster, uint64_t value) {
    return by_grain(is_fine_, [this, &cluster, value](auto grain) {
      return claim_in<decltype(grain), kShared>(cluster, value);
    });
  }

  // Marks the same block, and puts off its scan. Returns where that is noted, 0 if it was marked
  // before or there is none, kLeftover as above.
  template <bool kShared>
  [[gnu::always_inline]] uint64_t grey(const Cluster& cluster, uint64_t value) {
    return by_grain(is_fine_, [this, &cluster, value](auto grain) {
      using Grain = decltype(grain);
      uint64_t start = block_in_by<Grain>(cluster, value);
      return start <= kLeftover ? start : cluster.grey<Grain, kShared>(start);
    });
  }

  // Calls visit(block) for what was put off and is noted in the kSpan bytes from `base` on. It is
  // put off no more.
  template <bool kShared, typename Visit>
  [[gnu::always_inline]] void take_grey(const Cluster& cluster, uint64_t base, Visit visit) {
    by_grain(is_fine_, [this, &cluster, base, visit](auto grain) {
      using Grain = decltype(grain);
      for (uint64_t at = base; at < base + kSpan; at += Grain::kSpan)
        cluster.take_grey<Grain, kShared>(at, [&](const uint64_t* pair, uint64_t start) {
          visit(Range{start, end_in<Grain>(cluster, pair, start)});
        });
    });
  }

  // The end of the block's usable bytes.
  uint64_t end_of(uint64_t start) const {
    const Cluster* cluster = cluster_of(start);
    return by_grain(is_fine_, [this, cluster, start](auto grain) {
      using Grain = decltype(grain);
      return end_in<Grain>(*cluster, cluster->pair<Grain>(start), start);
    });
  }

  // Whether the block's usable bytes end there; takes no longer than that is far away.
  bool ends_at(uint64_t start, uint64_t end) const {
    const Cluster* cluster = cluster_of(start);
    if (!cluster->covers(end - 1)) return false;
    return by_grain(is_fine_, [this, cluster, start, end](auto grain) {
      using Grain = decltype(grain);
      uint64_t last = align_up(end + 1, Grain::kGranule);
      uint64_t edge = cluster->next_edge<Grain>(start + Grain::kLeastBlock, last);
      return edge != 0 && edge - tail_before<Grain>(edge) == end;
    });
  }

  // Calls visit(start) for each live block that is not marked, in address order.
  template <typename Visit>
  void each_unmarked(Visit visit) const {
    each(visit, [](const uint64_t* pair) { return pair[0] & ~pair[1]; });
  }

  template <typename Visit>
  void each_marked(Visit visit) const {
    each(visit, [](const uint64_t* pair) { return pair[0] & pair[1]; });
  }

  template <typename Visit>
  void each_live(Visit visit) const {
    each(visit, [](const uint64_t* pair) { return pair[0]; });
  }

  // The same for marked ones that begin in a part of one region.
  template <typename Visit>
  void each_marked_in(Range part, Visit visit) const {
    each_in(part, visit, [](const uint64_t* pair) { return pair[0] & pair[1]; });
  }

  // To be called once, when all regions are known and all blocks added: sorts the regions and
  // notes, for every 64 KiB, the last start before it, so that no look-up searches far.
  void finish() {
    regions.sort();
    for (const Region& region : regions)
      inhabited_buckets_ += by_grain(is_fine_, [this, &region](auto grain) {
        return cluster_of(region.start)->note_region<decltype(grain)>(region.start, region.end);
      });
  }

  Regions regions;

 private:
  [[gnu::always_inline]] uint64_t* pair_in(const Cluster& cluster, uint64_t address) const {
    return is_fine_ ? cluster.pair<Fine>(address) : cluster.pair<Coarse>(address);
  }

  [[gnu::always_inline]] uint64_t block_in(const Cluster& cluster, uint64_t value) const {
    return by_grain(is_fine_, [this, &cluster, value](auto grain) {
      return block_in_by<decltype(grain)>(cluster, value);
    });
  }

  template <typename Grain, bool kShared>
  [[gnu::always_inline]] Range claim_in(const Cluster& cluster, uint64_t value) {
    uint64_t start = block_in_by<Grain>(cluster, value);
    if (start <= kLeftover) return {start, start};
    uint64_t* pair = cluster.pair<Grain>(start);
    if (!set_marks<kShared>(pair + 1, 1ull << bit_of<Grain>(start), 0)) return {0, 0};
    return {start, end_in<Grain>(cluster, pair, start)};
  }

  // Most pointers point to the start of a block.
  template <typename Grain>
  [[gnu::always_inline]] uint64_t block_in_by(const Cluster& cluster, uint64_t value) const {
    uint64_t granule = value & ~(Grain::kGranule - 1);
    return cluster.is_start<Grain>(granule) ? granule : block_around<Grain>(cluster, value);
  }

  template <typename Grain>
  uint64_t block_around(const Cluster& cluster, uint64_t value) const {
    if (!cluster.is_inhabited(value)) return 0;
    uint64_t start = cluster.last_edge<Grain>(value);
    if (start == 0) return 0;
    if (!cluster.is_start<Grain>(start)) {
      if (!kHasRoomBehindStart<Grain>) return 0;
      // Right behind its start a block is noted as put off.
      start -= Grain::kGranule;
      if (!cluster.is_start<Grain>(start)) return 0;
    }
    if (value % kGranule == 0) return is_chunk<Grain>(value) ? kLeftover : start;
    // Only the last word of a block may be bytes that are not the block's.
    uint64_t next = (value & ~7ull) + 8;
    if (next % Grain::kGranule != 0 || !is_edge(next)) return start;
    return value >= next - tail_before<Grain>(next) ? 0 : start;
  }

  // Whether a chunk begins at the granule `address`.
  template <typename Grain>
  bool is_chunk(uint64_t address) const {
    uint64_t user = address + kChunkHeader;
    return is_edge(user) && tail_before<Grain>(user) != 0;
  }

  // `pair` is that of the start.
  template <typename Grain>
  [[gnu::always_inline]] uint64_t end_in(const Cluster& cluster, const uint64_t* pair,
                                         uint64_t start) const {
    constexpr unsigned kLeast = Grain::kLeastBlock / Grain::kGranule;
    uint64_t edges = edges_of(pair) & (~0ull << bit_of<Grain>(start) << kLeast);
    uint64_t edge = edges == 0 ? cluster.next_edge<Grain>(start + Grain::kLeastBlock)
                               : first_of<Grain>(start & ~(Grain::kSpan - 1), edges);
    return edge - tail_before<Grain>(edge);
  }

  uint64_t bit_at(uint64_t address) const {
    return 1ull << (is_fine_ ? bit_of<Fine>(address) : bit_of<Coarse>(address));
  }

  void set(uint64_t address, bool start, bool mark) {
    uint64_t* pair = pair_at(address);
    uint64_t bit = bit_at(address);
    pair[0] = start ? pair[0] | bit : pair[0] & ~bit;
    pair[1] = mark ? pair[1] | bit : pair[1] & ~bit;
  }

  template <typename Grain>
  void drop_edges_in(uint64_t from, uint64_t to) {
    for (uint64_t base = from & ~(Grain::kSpan - 1); base < to; base += Grain::kSpan) {
      uint64_t dropped = ~0ull;
      if (base < from) dropped &= ~0ull << bit_of<Grain>(from);
      if (to - base < Grain::kSpan) dropped &= ~(~0ull << bit_of<Grain>(to));
      uint64_t* pair = pair_at(base);
      pair[0] &= ~dropped;
      pair[1] &= ~dropped;
    }
  }

  bool is_edge(uint64_t address) const {
    return (edges_of(pair_at(address)) & bit_at(address)) != 0;
  }

  // Chunks end 8 bytes before the next one's user address, since its size word lies between. Those
  // that were mapped by themselves end with their last page.
  template <typename Grain>
  uint64_t tail_before(uint64_t edge) const {
    if constexpr (kHasRoomBehindStart<Grain>) {
      if (edge % kPage != 0) return kChunkTail;
      const Region* region = regions.ending_at(edge);
      return region != nullptr ? region->tail : kChunkTail;
    } else {
      const Region* region = regions.around(edge - 1);
      return region != nullptr ? region->tail : 0;
    }
  }

  template <typename Visit, typename Select>
  void each(Visit visit, Select select) const {
    for (const Region& region : regions) each_in({region.start, region.end}, visit, select);
  }

  template <typename Visit, typename Select>
  void each_in(Range part, Visit& visit, Select select) const {
    by_grain(is_fine_, [this, part, &visit, select](auto grain) {
      using Grain = decltype(grain);
      const Cluster* cluster = cluster_of(part.start);
      for (uint64_t base = part.start & ~(Grain::kSpan - 1); base < part.end;
           base += Grain::kSpan) {
        uint64_t starts = select(cluster->pair<Grain>(base));
        for (; starts != 0; starts &= starts - 1) {
          uint64_t start = first_of<Grain>(base, starts);
          if (part.contains(start)) visit(start);
        }
      }
    });
  }

  Clusters clusters_;
  uint64_t buckets_ = 0;
  uint64_t inhabited_buckets_ = 0;
  const bool is_fine_;
};

}  // namespace reachscan::heaps
