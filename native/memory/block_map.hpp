// Records where live blocks start and which of them are marked: two bits per granule.
//
//   start mark
//     0    0    inside a block, or no heap at all
//     1    0    a live block starts here
//     1    1    a live block starts here and has been reached
//     0    1    a boundary: whatever starts here is not a live block
//
// A block ends at the next start or boundary, less any bytes before it that belong to the allocator
// (Region::tail). A granule is 16 bytes and a block spans at least two, so no boundary directly
// follows a start: marking uses the mark bit there (grey.hpp).
//
// For allocators with smaller blocks, the sweeper's fine form is used instead (cluster.hpp). There
// a granule is 8 bytes, a block spans at least one, and tails begin with a boundary.
//
// Words of starts and words of marks alternate, so that one cache line answers a lookup. The
// bitmaps span all anonymous memory of the process but are backed only where there are heaps: 1/64
// of their size, or 5/128 in the fine form. Where blank granules are noted, they take 1/128 more,
// or 1/64 (blanks.hpp).
#pragma once

#include "memory/blanks.hpp"
#include "memory/clusters.hpp"
#include "memory/grey.hpp"
#include "memory/leftover.hpp"
#include "memory/regions.hpp"

namespace reachscan::heaps {

class BlockMap {
 public:
  // `in_modules`: an allocator uses leftover space in pages that hold module data.
  BlockMap(const Space& space, MapMemory map, bool in_modules = false) : regions(map) {
    for (const abi::Mapping& m : space)
      if (Space::is_anonymous(m) || (in_modules && Space::is_module_data(m)))
        clusters_.extend(m.start, m.end);
    clusters_.allocate(map);
  }

  void add_live(uint64_t address) { set(pair_at(address), address, true, false); }
  void add_boundary(uint64_t address) { set(pair_at(address), address, false, true); }

  // Sets the blocks and boundaries of the kSpan bytes from `base` on, one bit per granule.
  void add_edges(uint64_t base, uint64_t starts, uint64_t boundaries) {
    uint64_t* pair = pair_at(base);
    pair[0] = (pair[0] & ~boundaries) | starts;
    pair[1] = (pair[1] & ~starts) | boundaries;
  }

  // Called before note_blanks() if wide words are available.
  void find_blanks() { finds_blanks_ = true; }

  // Notes which granules are blank in the kSpan bytes from `base` on, all of them readable.
  void note_blanks(uint64_t base) {
    if (!finds_blanks_) return;
    *cluster_of(base)->blanks_at(base) = blank_granules(base, hull());
    if (!has_blanks()) __atomic_store_n(&has_blanks_, true, __ATOMIC_RELAXED);
  }

  // Returns whether any have been noted.
  bool has_blanks() const { return __atomic_load_n(&has_blanks_, __ATOMIC_RELAXED); }

  // Forgets all blocks and boundaries in [from, to).
  void drop_edges(uint64_t from, uint64_t to) {
    for (uint64_t base = from & ~(kSpan - 1); base < to; base += kSpan) {
      uint64_t dropped = ~0ull;
      if (base < from) dropped &= ~0ull << bit_of(from);
      if (to - base < kSpan) dropped &= ~(~0ull << bit_of(to));
      uint64_t* pair = pair_at(base);
      pair[0] &= ~dropped;
      pair[1] &= ~dropped;
    }
  }

  // Drops a block that turned out to be in a free list or to belong to the allocator itself.
  void drop_live(uint64_t address) { add_boundary(address); }

  // Drops all blocks that are marked, in the regions added so far. Does not write where there are
  // none: pages of the bitmaps that nobody has written to take no memory.
  void drop_marked() {
    for (const Region& region : regions) {
      uint64_t* pair = pair_at(region.start);
      for (uint64_t base = region.start & ~(kSpan - 1); base < region.end; base += kSpan, pair += 2)
        if ((pair[0] & pair[1]) != 0) pair[0] &= ~pair[1];
    }
  }

  // Returns the pair of words for an address, or null if no block can start there.
  uint64_t* pair_for_start(uint64_t address) const {
    const Cluster* cluster = address % kGranule == 0 ? cluster_of(address) : nullptr;
    return cluster == nullptr ? nullptr : cluster->pair(address);
  }

  bool is_live(uint64_t address) const {
    const uint64_t* pair = pair_for_start(address);
    return pair != nullptr && (relaxed(pair) >> bit_of(address) & 1) != 0;
  }

  // Prefetches what is_live() will read.
  void fetch_edges(uint64_t address) const {
    if (const Cluster* cluster = cluster_of(address)) fetch(cluster->pair(address));
  }

  // Returns the first live block at or after `address`. A block or boundary must follow `address`.
  uint64_t first_live(uint64_t address) const {
    while (!is_live(address)) address = cluster_of(address)->next_edge(address + kGranule);
    return address;
  }

  bool is_marked(uint64_t address) const {
    return (relaxed(cluster_of(address)->pair(address) + 1) >> bit_of(address) & 1) != 0;
  }

  void clear_mark(uint64_t address) {
    cluster_of(address)->pair(address)[1] &= ~(1ull << bit_of(address));
  }

  // Returns whether a word can be a pointer into a heap at all: a cheap test that most words fail.
  bool may_point(uint64_t value) const { return cluster_of(value) != nullptr; }

  // See clusters.hpp.
  Range hull() const { return clusters_.hull(); }
  Hulls hulls() const { return clusters_.hulls(); }
  const Cluster* cluster_of(uint64_t address) const { return clusters_.of(address); }

  // Returns the pair of words for `address`. The end of a cluster's last region has no cluster of
  // its own and uses the spare pair.
  uint64_t* pair_at(uint64_t address) const {
    const Cluster* cluster = cluster_of(address);
    if (cluster == nullptr) cluster = cluster_of(address - 1);
    return cluster->pair(address);
  }

  // The number of buckets in all clusters, and of those that contain regions (after finish()).
  uint64_t buckets() const { return clusters_.buckets(); }
  uint64_t inhabited_buckets() const { return inhabited_buckets_; }

  // Returns the live block that `value` points into, at any offset, or 0. One past the end is
  // outside. Not inlined, since it is called from everywhere.
  [[gnu::noinline]] uint64_t block_of(uint64_t value) const {
    const Cluster* cluster = cluster_of(value);
    return cluster == nullptr ? 0 : block_in(*cluster, value | kElsewhere);
  }

  // Returns whether a word may be a link of a free list. These lists link chunks, so it looks like
  // a pointer to the last word of a block, the one before the chunk.
  bool is_link(uint64_t value) const {
    const Cluster* cluster = cluster_of(value);
    return cluster != nullptr && block_in(*cluster, value) == kLeftover;
  }

  // Marks the live block that `value` points into. Returns its start, or 0 if it was already
  // marked. Shared: several threads call this, and exactly one of them gets the block.
  template <bool kShared = false>
  uint64_t mark(uint64_t value) {
    const Cluster* cluster = cluster_of(value);
    if (cluster == nullptr) return 0;
    uint64_t start = block_in(*cluster, value | kElsewhere);
    return start != 0 && set_mark<kShared>(cluster->pair(start) + 1, 1ull << bit_of(start)) ? start
                                                                                            : 0;
  }

  // Returns the live block that `value` points into, 0, or kLeftover if a free list may have left
  // the value behind. Most pointers point to the start of a block.
  [[gnu::always_inline]] uint64_t block_in(const Cluster& cluster, uint64_t value) const {
    uint64_t granule = value & ~(kGranule - 1);
    return is_start(cluster, granule) ? granule : block_around(cluster, value);
  }

  // These change marks. While one thread does it, no other one may do it in the same bucket.

  // Marks a live block. Returns false if it was already marked.
  [[gnu::always_inline]] bool mark_in(const Cluster& cluster, uint64_t start) {
    return set_mark<false>(cluster.pair(start) + 1, 1ull << bit_of(start));
  }

  // The same, but returns its usable bytes, or an empty range.
  [[gnu::always_inline]] Range claim(const Cluster& cluster, uint64_t start) {
    if (!mark_in(cluster, start)) return {0, 0};
    return range_in(cluster, start);
  }

  // Calls visit(block) for each grey block noted in the kSpan bytes from `base` on and clears the
  // notes.
  template <typename Visit>
  [[gnu::always_inline]] void take_grey(const Cluster& cluster, uint64_t base, Visit visit) {
    const uint64_t notes = notes_in(cluster, base);
    if (notes == 0) return;
    const Greys greys = take_greys(cluster, base, notes);
    if (greys.one_before) visit(range_in(cluster, base - kGranule));
    for (uint64_t left = greys.blocks; left != 0; left &= left - 1)
      visit(range_in(cluster, base + static_cast<unsigned>(__builtin_ctzll(left)) * kGranule));
  }

  // The same for kSpansAtOnce spans, but calls visit_granule(granule) for the granules of small
  // blocks that are not blank, where that is known.
  template <typename Visit, typename VisitGranule>
  [[gnu::always_inline]] void take_granules(const Cluster& cluster, uint64_t base, Visit visit,
                                            VisitGranule visit_granule) {
    heaps::take_granules(
        cluster, base, [&](uint64_t start) { visit(range_in(cluster, start)); }, visit_granule);
  }

  // Returns the live block of a region that contains `address`, or 0. Works before finish(), but
  // takes time proportional to the size of the block.
  uint64_t holder_in(const Region& region, uint64_t address) const {
    uint64_t start = cluster_of(address)->last_edge(address, region.start);
    return start != 0 && is_live(start) ? start : 0;
  }

  // Returns the end of the block's usable bytes.
  uint64_t end_of(uint64_t start) const {
    const Cluster* cluster = cluster_of(start);
    if (kFine && has_exact_ends_) {
      const Region* in = regions.around(start);
      if (in != nullptr && in->exact_end != nullptr) return in->exact_end(*in, start);
    }
    return end_in(*cluster, cluster->pair(start), start);
  }

  Range range_of(uint64_t start) const { return {start, end_of(start)}; }

  // Returns whether the block's usable bytes end at `end`. Never searches further than that.
  bool ends_at(uint64_t start, uint64_t end) const {
    const Cluster* cluster = cluster_of(start);
    if (!cluster->covers(end - 1)) return false;
    uint64_t edge = cluster->next_edge(start + kMinBlock, align_up(end + 1, kGranule));
    return edge != 0 && edge - tail_before(edge) == end;
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

  // The same for blocks that start within part of one region.
  template <typename Visit>
  void each_marked_in(Range part, Visit visit) const {
    each_in(part, visit, [](const uint64_t* pair) { return pair[0] & pair[1]; });
  }

  template <typename Visit>
  void each_live_in(Range part, Visit visit) const {
    each_in(part, visit, [](const uint64_t* pair) { return pair[0]; });
  }

  // Must be called once, after all regions and blocks have been added. Sorts the regions and notes,
  // for every 64 KiB, the last start before it, which bounds the search of every lookup.
  void finish() {
    sort_regions();
    if (kFine) note_tails();
    for (const Region& region : regions)
      inhabited_buckets_ += cluster_of(region.start)->note_region(region.start, region.end);
  }

  void sort_regions() { regions.sort(); }
  bool add_region(const Region& region) {
    has_exact_ends_ = has_exact_ends_ || region.exact_end != nullptr;
    return regions.add(region);
  }
  const Region* region_in(Range range) const { return regions.in(range); }
  const Region* region_of(uint64_t address) const { return regions.around(address); }

  Regions regions;

 private:
  uint64_t block_around(const Cluster& cluster, uint64_t value) const {
    if (!cluster.is_inhabited(value)) return 0;
    uint64_t granule = value & ~(kGranule - 1);
    uint64_t start = cluster.last_edge(value);
    if (start == 0) return 0;
    if constexpr (kFine)
      return !is_start(cluster, start) ? 0 : is_before_chunk(value) ? kLeftover : start;
    // A grey block is noted in the granule after its start.
    if (!is_start(cluster, start) && !is_start(cluster, start -= kGranule)) return 0;
    // Only the last granule of a block can contain bytes that are not part of it.
    uint64_t next = granule + kGranule;
    bool may_be_chunk = value == granule;
    if (((value & 8) == 0 && !may_be_chunk) || !is_edge(next)) return start;
    uint64_t tail = tail_before(next);
    if (value >= next - tail) return 0;
    return may_be_chunk && tail != 0 ? kLeftover : start;
  }

  // `pair` covers the start.
  [[gnu::always_inline]] uint64_t end_in(const Cluster& cluster, const uint64_t* pair,
                                         uint64_t start) const {
    uint64_t edges = edges_of(pair) & (~0ull << bit_of(start) << (kMinBlock / kGranule));
    uint64_t edge = edges == 0 ? cluster.next_edge(start + kMinBlock)
                               : (start & ~(kSpan - 1)) +
                                     static_cast<unsigned>(__builtin_ctzll(edges)) * kGranule;
    return edge - tail_before(edge);
  }

  [[gnu::always_inline]] Range range_in(const Cluster& cluster, uint64_t start) const {
    return {start, end_in(cluster, cluster.pair(start), start)};
  }

  static bool is_start(const Cluster& cluster, uint64_t granule) {
    return (cluster.pair(granule)[0] >> bit_of(granule) & 1) != 0;
  }

  static void set(uint64_t* pair, uint64_t address, bool start, bool mark) {
    uint64_t bit = 1ull << bit_of(address);
    pair[0] = start ? pair[0] | bit : pair[0] & ~bit;
    pair[1] = mark ? pair[1] | bit : pair[1] & ~bit;
  }

  bool is_edge(uint64_t address) const {
    const uint64_t* pair = pair_at(address);
    return (edges_of(pair) >> bit_of(address) & 1) != 0;
  }

  // An ordinary chunk ends 8 bytes before the next one's user address, since its size word is in
  // between. A chunk with a mapping of its own ends with its last page.
  uint64_t tail_before(uint64_t edge) const {
    if (kFine) return 0;
    return edge % kPage != 0 ? 8 : regions.tail_at(edge, 8);
  }

  // Fine form: whether `value` may point to a chunk, the last word of the block before it.
  bool is_before_chunk(uint64_t value) const {
    if (value % (2 * kGranule) != 0 || !is_edge(value + 2 * kGranule)) return false;
    const Region* region = regions.around(value);
    return region != nullptr && region->tail != 0 && is_edge(value + kGranule);
  }

  // Fine form: puts boundaries before tails, which are one granule long.
  void note_tails() {
    for (const Region& region : regions) {
      if (region.tail == 0) continue;
      for (uint64_t base = region.start & ~(kSpan - 1); base <= region.end; base += kSpan) {
        uint64_t* pair = pair_at(base);
        uint64_t edges = edges_of(pair);
        if (base <= region.start) edges &= ~0ull << bit_of(region.start) << 1;
        if (region.end - base < kSpan) edges &= ~(~0ull << bit_of(region.end) << 1);
        pair[1] |= edges >> 1;
        if ((edges & 1) != 0) pair[-1] |= 1ull << 63;
      }
    }
  }

  template <typename Visit, typename Select>
  void each_in(Range part, Visit visit, Select select) const {
    const Cluster* cluster = cluster_of(part.start);
    for (uint64_t base = part.start & ~(kSpan - 1); base < part.end; base += kSpan) {
      for (uint64_t starts = select(cluster->pair(base)); starts != 0; starts &= starts - 1) {
        uint64_t start = base + static_cast<unsigned>(__builtin_ctzll(starts)) * kGranule;
        if (part.contains(start)) visit(start);
      }
    }
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

  Clusters clusters_;
  bool has_exact_ends_ = false;
  bool finds_blanks_ = false;
  bool has_blanks_ = false;
  uint64_t inhabited_buckets_ = 0;
};

}  // namespace reachscan::heaps
