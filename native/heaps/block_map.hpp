// Where the live blocks are, and which of them are marked: two bits for each granule of 16 bytes.
//
//   start mark
//     0    0    inside a block, or no heap at all
//     1    0    a live block starts here
//     1    1    a live block starts here and has been reached
//     0    1    a boundary: what starts here is no live block
//
// A block ends where the next start or boundary is, less the bytes that belong to the allocator.
// The words of starts and marks alternate, so that one cache line answers a look-up. The bitmaps
// span all anonymous memory of the process but are backed only where heaps are: 1/64 of their size.
#pragma once

#include "heaps/list.hpp"
#include "heaps/space.hpp"

namespace reachscan::heaps {

constexpr uint64_t kGranule = 16;

// Memory under an allocator's control. No part of it is a root; its blocks are reached or not.
struct Region {
  uint64_t start;
  uint64_t end;
  uint32_t kind;   // wire::RegionKind
  uint32_t arena;  // ordinal, 0 = main
  uint32_t tail;   // bytes before a block's end mark that are not the block's
  uint32_t reserved;

  // Two regions may share the span of one pair of words; each answers for its own blocks.
  bool contains_start(uint64_t address) const { return address - start < end - start; }
};

class BlockMap {
 public:
  BlockMap(const Space& space, MapMemory map) : regions(map, kMaxRegions) {
    for (const abi::Mapping& m : space)
      if (Space::is_anonymous(m)) extend(m.start, m.end);
    for (std::size_t i = 0; i < cluster_count_; ++i) clusters_[i].allocate(map);
  }

  void add_live(uint64_t address) { set(address, true, false); }
  void add_boundary(uint64_t address) { set(address, false, true); }

  // A block that turned out to be in a free list or the allocator's own.
  void drop_live(uint64_t address) { set(address, false, true); }

  bool is_live(uint64_t address) const {
    if (address % kGranule != 0) return false;
    const Cluster* cluster = cluster_of(address);
    return cluster != nullptr && (cluster->pair(address)[0] >> bit_of(address) & 1) != 0;
  }

  // The first live block from `address` on, which must be before some block or boundary.
  uint64_t first_live(uint64_t address) const {
    while (!is_live(address)) address = cluster_of(address)->next_edge(address);
    return address;
  }

  bool is_marked(uint64_t address) const {
    return (cluster_of(address)->pair(address)[1] >> bit_of(address) & 1) != 0;
  }

  void clear_mark(uint64_t address) {
    cluster_of(address)->pair(address)[1] &= ~(1ull << bit_of(address));
  }

  // Whether a word can be a pointer into a heap at all; the cheap test that most words fail.
  bool may_point(uint64_t value) const { return cluster_of(value) != nullptr; }

  // All that may_point() accepts lies in here, and little else does: two comparisons sort out most
  // words.
  Range hull() const {
    if (cluster_count_ == 0) return {0, 0};
    const Cluster& last = clusters_[cluster_count_ - 1];
    return {clusters_[0].start, last.start + last.length};
  }

  // Where the bits of an address are. To be found once and handed on, as it takes a search.
  struct Place {
    const void* cluster;
    uint64_t* pair;
    explicit operator bool() const { return pair != nullptr; }
  };

  // Null if the value cannot be a pointer into a heap.
  [[gnu::always_inline]] Place place_of(uint64_t value) const {
    const Cluster* cluster = cluster_of(value);
    return {cluster, cluster == nullptr ? nullptr : cluster->pair(value)};
  }

  // The live block that `value` points into, wherever in it; 0 if none. One past the end is not in.
  uint64_t block_of(uint64_t value) const {
    const Cluster* cluster = cluster_of(value);
    return cluster == nullptr ? 0 : block_in(*cluster, value);
  }

  // Marks the live block that `value` points into. Returns its start if it was not marked before.
  uint64_t mark(uint64_t value) {
    Place place = place_of(value);
    return place ? claim<false>(value, place).start : 0;
  }

  // Marks the live block that `value`, at `place`, points into. Returns where its usable bytes are;
  // nowhere if it was marked before, or there is none. Shared: other threads do it too, and exactly
  // one of them gets the block.
  template <bool kShared>
  [[gnu::always_inline]] Range claim(uint64_t value, Place place) {
    uint64_t start = value & ~(kGranule - 1);
    uint64_t* pair = place.pair;
    // Most pointers point to the start of a block.
    if ((pair[0] >> bit_of(value) & 1) == 0 || (value & 8) != 0) {
      const Cluster& cluster = *static_cast<const Cluster*>(place.cluster);
      start = block_in(cluster, value);
      if (start == 0) return {0, 0};
      pair = cluster.pair(start);
    }
    unsigned bit = bit_of(start);
    if (!set_mark<kShared>(pair + 1, 1ull << bit)) return {0, 0};
    uint64_t edges = edges_of(pair) & (~0ull << bit << 1);
    if (edges == 0) return {start, end_of(start)};
    uint64_t edge =
        (start & ~(kSpan - 1)) + static_cast<unsigned>(__builtin_ctzll(edges)) * kGranule;
    return {start, edge - tail_before(edge)};
  }

  // The end of the block's usable bytes.
  uint64_t end_of(uint64_t start) const {
    uint64_t edge = cluster_of(start)->next_edge(start);
    return edge - tail_before(edge);
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

  // To be called once, when all regions are known and all blocks added: sorts the regions and
  // notes, for every 64 KiB, the last start before it, so that no look-up searches far.
  void finish() {
    sort_regions();
    for (const Region& region : regions) cluster_of(region.start)->note_carries(region);
  }

  void sort_regions() {
    sort(regions, [](const Region& a, const Region& b) { return a.start < b.start; });
  }

  // The region around `address`, null if there is none. After finish().
  const Region* region_of(uint64_t address) const {
    std::size_t low = 0, high = regions.size();
    while (low < high) {
      std::size_t middle = (low + high) / 2;
      if (regions[middle].end <= address) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    bool inside = low < regions.size() && regions[low].contains_start(address);
    return inside ? &regions[low] : nullptr;
  }

  List<Region> regions;

 private:
  static constexpr uint64_t kSpan = 64 * kGranule;  // bytes covered by one pair of words
  static constexpr uint64_t kChunk = 1 << 16;       // bytes covered by one carry
  static constexpr uint64_t kGap = 1ull << 38;
  static constexpr std::size_t kMaxClusters = 8;
  static constexpr std::size_t kMaxRegions = 1 << 20;

  // Marks change under the eyes of other threads; starts and boundaries stay.
  static uint64_t relaxed(const uint64_t* word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }
  static uint64_t edges_of(const uint64_t* pair) { return pair[0] | relaxed(pair + 1); }

  template <bool kShared>
  static bool set_mark(uint64_t* marks, uint64_t bit) {
    if ((relaxed(marks) & bit) != 0) return false;
    if (kShared) return (__atomic_fetch_or(marks, bit, __ATOMIC_RELAXED) & bit) == 0;
    *marks |= bit;
    return true;
  }

  struct Cluster {
    uint64_t start;
    uint64_t length;
    uint64_t* words;
    uint64_t* carries;  // the last start or boundary before this 64 KiB, 0 if none

    void allocate(MapMemory map) {
      // One pair more: a boundary may stand at the very end.
      words = static_cast<uint64_t*>(map((length / kSpan + 1) * 2 * sizeof(uint64_t)));
      carries = static_cast<uint64_t*>(map((length / kChunk + 1) * sizeof(uint64_t)));
    }

    uint64_t* pair(uint64_t address) const { return words + (address - start) / kSpan * 2; }

    uint64_t last_start(uint64_t value) const {
      uint64_t* at = pair(value);
      uint64_t edges = edges_of(at) & (~0ull >> (63 - bit_of(value)));
      uint64_t base = value & ~(kSpan - 1);
      uint64_t stop = value & ~(kChunk - 1);
      while (edges == 0) {
        if (base == stop) return carries[(value - start) / kChunk];
        base -= kSpan;
        at -= 2;
        edges = edges_of(at);
      }
      return base + (63 - static_cast<unsigned>(__builtin_clzll(edges))) * kGranule;
    }

    uint64_t next_edge(uint64_t address) const {
      uint64_t* at = pair(address);
      uint64_t base = address & ~(kSpan - 1);
      // Two shifts: bit 63 would need a shift by 64.
      uint64_t edges = edges_of(at) & (~0ull << bit_of(address) << 1);
      while (edges == 0) {
        at += 2;
        base += kSpan;
        edges = edges_of(at);
      }
      return base + static_cast<unsigned>(__builtin_ctzll(edges)) * kGranule;
    }

    void note_carries(const Region& region) {
      uint64_t last = 0;
      for (uint64_t base = region.start & ~(kSpan - 1); base < region.end; base += kSpan) {
        if (base % kChunk == 0 && base > region.start) carries[(base - start) / kChunk] = last;
        uint64_t* at = pair(base);
        uint64_t edges = edges_of(at);
        if (edges != 0)
          last = base + (63 - static_cast<unsigned>(__builtin_clzll(edges))) * kGranule;
      }
    }
  };

  // Most pointers point to the start of a block.
  uint64_t block_in(const Cluster& cluster, uint64_t value) const {
    unsigned bit = bit_of(value);
    uint64_t start = value & ~(kGranule - 1);
    if ((cluster.pair(value)[0] >> bit & 1) == 0) {
      start = cluster.last_start(value);
      if (start == 0 || (cluster.pair(start)[0] >> bit_of(start) & 1) == 0) return 0;
    }
    // Only the last granule of a block has bytes that are not the block's.
    uint64_t next = (value & ~(kGranule - 1)) + kGranule;
    if ((value & 8) != 0 && is_edge(next) && value >= next - tail_before(next)) return 0;
    return start;
  }

  static unsigned bit_of(uint64_t address) { return address / kGranule % 64; }

  // Mappings come in order, so only the last cluster can grow.
  void extend(uint64_t start, uint64_t end) {
    start &= ~(kChunk - 1);
    end = align_up(end, kChunk);
    if (cluster_count_ > 0) {
      Cluster& last = clusters_[cluster_count_ - 1];
      bool near = start - (last.start + last.length) < kGap || start < last.start + last.length;
      if (near || cluster_count_ == kMaxClusters) {
        last.length = end - last.start;
        return;
      }
    }
    clusters_[cluster_count_++] = {start, end - start, nullptr, nullptr};
  }

  const Cluster* cluster_of(uint64_t address) const {
    for (std::size_t i = 0; i < cluster_count_; ++i)
      if (address - clusters_[i].start < clusters_[i].length) return &clusters_[i];
    return nullptr;
  }
  Cluster* cluster_of(uint64_t address) {
    return const_cast<Cluster*>(static_cast<const BlockMap*>(this)->cluster_of(address));
  }

  // The end of a cluster's last region has no cluster of its own; it shares the spare pair.
  uint64_t* pair_at(uint64_t address) const {
    const Cluster* cluster = cluster_of(address);
    if (cluster == nullptr) cluster = cluster_of(address - 1);
    return cluster->pair(address);
  }

  void set(uint64_t address, bool start, bool mark) {
    uint64_t* pair = pair_at(address);
    uint64_t bit = 1ull << bit_of(address);
    pair[0] = start ? pair[0] | bit : pair[0] & ~bit;
    pair[1] = mark ? pair[1] | bit : pair[1] & ~bit;
  }

  bool is_edge(uint64_t address) const {
    const uint64_t* pair = pair_at(address);
    return (edges_of(pair) >> bit_of(address) & 1) != 0;
  }

  // Blocks of the common kind end 8 bytes before the next one's user address, since its size word
  // lies between. Those that were mapped by themselves end with their last page.
  uint64_t tail_before(uint64_t edge) const {
    return edge % kPage != 0 ? 8 : tail_before_page(edge);
  }

  uint64_t tail_before_page(uint64_t edge) const {
    std::size_t low = 0, high = regions.size();
    while (low < high) {
      std::size_t middle = (low + high) / 2;
      if (regions[middle].end < edge) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low < regions.size() && regions[low].end == edge ? regions[low].tail : 8;
  }

  template <typename Visit, typename Select>
  void each(Visit visit, Select select) const {
    for (const Region& region : regions) {
      const Cluster* cluster = cluster_of(region.start);
      for (uint64_t base = region.start & ~(kSpan - 1); base < region.end; base += kSpan) {
        uint64_t starts = select(cluster->pair(base));
        for (; starts != 0; starts &= starts - 1) {
          uint64_t start = base + static_cast<unsigned>(__builtin_ctzll(starts)) * kGranule;
          if (region.contains_start(start)) visit(start);
        }
      }
    }
  }

  Cluster clusters_[kMaxClusters] = {};
  std::size_t cluster_count_ = 0;
};

}  // namespace reachscan::heaps
