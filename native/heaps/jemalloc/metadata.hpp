// The mappings in which the allocator keeps its own structures (base_block_t). Nothing in them is a
// block, and pointers in them do not keep blocks in use.
#pragma once

#include "heaps/jemalloc/layout.hpp"

namespace reachscan::heaps::jemalloc {

// Such a mapping is aligned to 2 MiB in size and address, and starts with its size, the next one,
// and an extent for the rest of it, which always extends to its end.
constexpr uint64_t kMetadataAlignment = 2 << 20;
constexpr uint64_t kRestField = 16;

// Returns the mapping of metadata that starts at `start`, empty if there is none.
inline Range metadata_at(const Space& space, uint64_t start) {
  if (!space.readable(start, kPage)) return {0, 0};
  uint64_t size = word(start), next = word(start + 8);
  uint64_t rest = word(start + kRestField + kAddressField);
  uint64_t left = word(start + kRestField + kSizeField);
  bool aligned = size % kMetadataAlignment == 0 && next % kMetadataAlignment == 0;
  bool possible = aligned && size != 0 && size < 1ull << kAddressBits;
  if (!possible || rest <= start || rest - start > size || left != start + size - rest ||
      !space.is_anonymous(start, start + size))
    return {0, 0};
  return {start, start + size};
}

// Returns the mapping of metadata that contains `address`, empty if there is none. Its first page
// was written to, so that terabytes which a program has only reserved are passed over at once.
inline Range metadata_around(const Space& space, uint64_t address, Budget& budget) {
  for (uint64_t start = address & ~(kMetadataAlignment - 1); start != 0 && budget.spend(1);
       start -= kMetadataAlignment) {
    const abi::Mapping* m = space.find(start);
    if (m == nullptr || !Space::is_anonymous(*m)) return {0, 0};
    if (Space::is_written_anonymous(*m)) {
      Range found = metadata_at(space, start);
      if (found.contains(address)) return found;
    } else {
      start = align_up(m->start, kMetadataAlignment);
    }
  }
  return {0, 0};
}

// The metadata mappings of one instance that have been met so far.
class Metadata {
 public:
  Metadata() = default;
  explicit Metadata(MapMemory map) : ranges_(map, kMax) {}

  bool contains(uint64_t address) {
    if (last_.contains(address)) return true;
    for (const Range& range : ranges_) {
      if (!range.contains(address)) continue;
      last_ = range;
      return true;
    }
    return false;
  }

  // Returns false if there is no room.
  bool add(Range range) {
    last_ = range;
    return ranges_.push(range);
  }

  // The one that was met last.
  Range last() const { return last_; }

 private:
  static constexpr std::size_t kMax = 1 << 16;

  List<Range> ranges_;
  Range last_{0, 0};
};

}  // namespace reachscan::heaps::jemalloc
