// The memory from which allocators carve blocks.
#pragma once

#include <initializer_list>

#include "memory/list.hpp"
#include "memory/space.hpp"

namespace reachscan::heaps {

// Memory under an allocator's control. No part of it is a root: blocks in it must be reached.
struct Region {
  uint64_t start;
  uint64_t end;
  uint32_t kind;         // wire::RegionKind
  uint32_t arena;        // ordinal, 0 = main
  uint32_t tail;         // bytes at a block's end that belong to the allocator
  uint32_t block_bytes;  // of its only block, for exact_end
  // Set for allocators that record exact sizes: returns where the usable bytes of a live block end.
  // The map only knows the end of the last word (fine form).
  uint64_t (*exact_end)(const Region& region, uint64_t block) = nullptr;
  const void* listed = nullptr;  // of the walker, for exact_end

  // Two regions may share the span of one pair of words; each covers only its own blocks.
  bool contains_start(uint64_t address) const { return address - start < end - start; }
};

class Regions : public List<Region> {
 public:
  explicit Regions(MapMemory map) : List<Region>(map, kMax) {}

  // Adds a region that overlaps no other. Returns false if the list is full.
  bool add(const Region& region) {
    if (!push(region)) return false;
    // The list consists of sorted pieces: one for each bit of its length, the largest first.
    std::size_t piece = size() & (~size() + 1);
    heaps::sort(end() - piece, piece, starts_before);
    return true;
  }

  // Replaces a region by parts of it. Any part but the first may be empty. Returns false if the
  // list is full.
  bool replace(const Region& region, std::initializer_list<Region> parts) {
    // The parts lie between the region's neighbours, so the list stays sorted.
    bool first = true;
    for (const Region& part : parts) {
      if (first) (*this)[static_cast<std::size_t>(&region - begin())] = part;
      if (!first && part.start < part.end && !add(part)) return false;
      first = false;
    }
    return true;
  }

  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const Region& region : *this) sum += region.end - region.start;
    return sum;
  }

  // Called once, when all regions have been added.
  void sort() { heaps::sort(*this, starts_before); }

  // Returns a region that overlaps `range`, or null. Valid before sort(): a heap can have many
  // regions, and each is checked against all others.
  const Region* in(Range range) const {
    const Region* piece = begin();
    for (std::size_t left = size(); left > 0;) {
      std::size_t length = std::size_t{1} << (63 - __builtin_clzll(left));
      const Region* next = first_ending_after(range.start, piece, length);
      if (next != piece + length && next->start < range.end) return next;
      piece += length;
      left -= length;
    }
    return nullptr;
  }

  // Returns the region that contains `address`, or null. Valid after sort().
  const Region* around(uint64_t address) const {
    const Region* region = first_ending_after(address, begin(), size());
    return region != end() && region->contains_start(address) ? region : nullptr;
  }

  // Returns the tail of the region that ends at `edge`, or `usual` if none does. Valid after
  // sort().
  uint64_t tail_at(uint64_t edge, uint64_t usual) const {
    const Region* region = first_ending_after(edge - 1, begin(), size());
    return region != end() && region->end == edge ? region->tail : usual;
  }

 private:
  static constexpr std::size_t kMax = 1 << 20;

  static bool starts_before(const Region& a, const Region& b) { return a.start < b.start; }

  // Expects sorted regions.
  static const Region* first_ending_after(uint64_t address, const Region* regions,
                                          std::size_t count) {
    return regions +
           partition_point(count, [&](std::size_t i) { return regions[i].end <= address; });
  }
};

}  // namespace reachscan::heaps
