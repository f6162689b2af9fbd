// The memory that allocators carve blocks from.
#pragma once

#include <initializer_list>

#include "memory/list.hpp"
#include "memory/space.hpp"

namespace reachscan::heaps {

// Memory under an allocator's control. No part of it is a root; its blocks are reached or not.
struct Region {
  uint64_t start;
  uint64_t end;
  uint32_t kind;   // wire::RegionKind
  uint32_t arena;  // ordinal, 0 = main
  uint32_t tail;   // bytes before a block's end mark that are not the block's
  uint32_t reserved;
  // For allocators that note it to the byte: where the usable bytes of a live block end. The map
  // knows the end of the last word of them (fine form).
  uint64_t (*exact_end)(uint64_t block) = nullptr;

  // Two regions may share the span of one pair of words; each answers for its own blocks.
  bool contains_start(uint64_t address) const { return address - start < end - start; }
};

class Regions : public List<Region> {
 public:
  explicit Regions(MapMemory map) : List<Region>(map, kMost) {}

  // Claims memory that overlaps no other region. False if there is no room.
  bool add(const Region& region) {
    if (!push(region)) return false;
    // The list consists of sorted pieces: one for each bit of its length, the largest first.
    std::size_t piece = size() & (~size() + 1);
    heaps::sort(end() - piece, piece, starts_before);
    return true;
  }

  // Puts parts of a region in its place; some may be empty, but not the first. False if there is no
  // room.
  bool replace(const Region& region, std::initializer_list<Region> parts) {
    // Its neighbours in the list lie around it, so the order of the list stays.
    bool first = true;
    for (const Region& part : parts) {
      if (first) (*this)[static_cast<std::size_t>(&region - begin())] = part;
      if (!first && part.start < part.end && !add(part)) return false;
      first = false;
    }
    return true;
  }

  // Once, when all are known.
  void sort() { heaps::sort(*this, starts_before); }

  // A region that overlaps `range`, null if there is none. At any time: heaps can have many
  // regions, and each must be held against all others.
  const Region* in(Range range) const {
    const Region* piece = begin();
    for (std::size_t left = size(); left > 0;) {
      std::size_t length = std::size_t{1} << (63 - __builtin_clzll(left));
      const Region* next = first_ending_behind(range.start, piece, length);
      if (next != piece + length && next->start < range.end) return next;
      piece += length;
      left -= length;
    }
    return nullptr;
  }

  // The region around `address`, null if there is none. After sort().
  const Region* around(uint64_t address) const {
    const Region* region = first_ending_behind(address, begin(), size());
    return region != end() && region->contains_start(address) ? region : nullptr;
  }

  // The tail of the region that ends at `edge`, `usual` if none does. After sort().
  uint64_t tail_at(uint64_t edge, uint64_t usual) const {
    const Region* region = first_ending_behind(edge - 1, begin(), size());
    return region != end() && region->end == edge ? region->tail : usual;
  }

 private:
  static constexpr std::size_t kMost = 1 << 20;

  static bool starts_before(const Region& a, const Region& b) { return a.start < b.start; }

  // Of sorted regions.
  static const Region* first_ending_behind(uint64_t address, const Region* regions,
                                           std::size_t count) {
    std::size_t low = 0, high = count;
    while (low < high) {
      std::size_t middle = (low + high) / 2;
      if (regions[middle].end <= address) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return regions + low;
  }
};

}  // namespace reachscan::heaps
