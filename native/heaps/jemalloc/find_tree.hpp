// Finds the tree of all extents in stripped, dynamic and static programs alike, whatever prefix its
// functions have. Its root is an array in the module's data, long enough that few modules have room
// for it; what a word of it points to is a leaf if it lies in a mapping of metadata, and if the
// extents that the leaf leads to say that they are of that leaf's pages.
#pragma once

#include "heaps/jemalloc/metadata.hpp"

namespace reachscan::heaps::jemalloc {

constexpr std::size_t kMaxInstances = 8;
// Entries of a leaf that are looked at before one must have been consistent, and extents by which
// layout and classes are told.
constexpr uint64_t kFewExtents = 1 << 12;

// Data and .bss of one module, which may be several mappings.
inline Range data_of_module(const Space& space, const abi::Mapping* first) {
  const abi::Mapping* last = first;
  while (last + 1 != space.end() && last[1].start == last->end && Space::is_module_data(last[1]) &&
         (last[1].file == first->file || last[1].file == 0))
    ++last;
  return {first->start, last->end};
}

// Calls visit(entry, address of its page) for the entries of a leaf from `from` on, `base` being
// the address of its first page, until the budget is used up. What visit returns tells where to go
// on: an address behind that page, or 0 to end.
template <typename Visit>
void each_entry(const Space& space, uint64_t leaf, Range gib, Budget& budget, Visit visit) {
  uint64_t known = 0;  // a page of the leaf that has been written to
  for (uint64_t address = gib.start; address != 0 && address < gib.end && budget.spend(1);) {
    uint64_t slot = leaf_slot(leaf, address);
    if (slot / kPage != known) {
      uint64_t written = space.skip_absent(slot);
      address += (written - slot) / 8 * kPage;
      slot = written;
      known = slot / kPage;
      if (address >= gib.end) return;
    }
    uint64_t bits = word(slot);
    address = bits == 0 ? address + kPage : visit(LeafEntry{bits}, address);
  }
}

inline bool agree(const Extent& extent, LeafEntry entry) {
  return !extent.has_blocks() ||
         (extent.is_slab == entry.is_slab() && extent.size_class == entry.size_class());
}

// Whether the extent that a leaf names for a page has that page, and says about itself what the
// leaf says.
inline bool is_consistent(const Space& space, LeafEntry entry, uint64_t in_leaf,
                          const Layout& layout, uint64_t& start) {
  uint64_t at = entry.extent();
  if (!space.readable(at, kExtentBytes)) return false;
  Extent extent = read_extent(at, layout);
  bool has_page = extent.end > extent.start &&
                  (extent.start / kPage % kNodeWords) == (in_leaf / kPage % kNodeWords);
  start = extent.start;
  return has_page && agree(extent, entry);
}

// What a first look at the extents of a leaf says, for one layout.
struct LeafVotes {
  uint64_t gib = 0;  // number of the GiB that the leaf is for
  uint64_t extents = 0;
  uint64_t quantum[2] = {};  // how many have a size that is possible
  uint64_t padded = 0, unpadded = 0;

  void count(const Extent& extent) {
    if (!extent.has_blocks()) return;
    ++extents;
    uint64_t length = extent.end - extent.start;
    for (Quantum each : {Quantum::k16, Quantum::k8}) {
      uint64_t size = size_of_class(extent.size_class, each);
      bool slab = extent.is_slab && length % size == 0 && length / size <= kMostSlots;
      bool large = !extent.is_slab && size >= kLeastLarge;
      if (slab || (large && (length == size || length == size + kLargePad)))
        ++quantum[static_cast<unsigned>(each)];
      padded += large && length == size + kLargePad;
      unpadded += large && length == size;
    }
  }
};

inline LeafVotes look_at_leaf(const Space& space, uint64_t leaf, const Layout& layout) {
  LeafVotes votes;
  Budget budget(kNodeWords + kFewExtents);
  each_entry(space, leaf, {kPage, 1ull << kLeafShift}, budget,
             [&](LeafEntry entry, uint64_t address) -> uint64_t {
               uint64_t start = 0;
               if (!is_consistent(space, entry, address, layout, start)) return address + kPage;
               Extent extent = read_extent(entry.extent(), layout);
               if (votes.extents == 0) votes.gib = start >> kLeafShift;
               if (start >> kLeafShift != votes.gib) return address + kPage;
               votes.count(extent);
               if (votes.extents == kFewExtents) return 0;
               return address + (extent.end - extent.start);
             });
  return votes;
}

class Search {
 public:
  explicit Search(const Space& space) : space_(space) {}

  std::size_t find(Instance (&found)[kMaxInstances]) {
    std::size_t count = 0;
    uint64_t done = 0;
    for (const abi::Mapping& m : space_) {
      if (!Space::is_module_data(m) || m.start < done) continue;
      Range data = data_of_module(space_, &m);
      done = data.end;
      for (uint64_t slot = align_up(data.start, 8);
           data.end - data.start >= kNodeBytes && slot + 8 <= data.end; slot += 8) {
        if (slot % kPage == 0) slot = space_.skip_absent(slot);
        if (slot + 8 > data.end || count == kMaxInstances) break;
        if (!is_instance(slot, data, found[count])) continue;
        found[count].file = m.file;
        // The other leaves of the same root.
        slot = found[count++].root + kNodeBytes - 8;
      }
    }
    return count;
  }

 private:
  static constexpr uint64_t kSteps = 1 << 20;

  // Whether `slot` points to a leaf; then an instance is known.
  bool is_instance(uint64_t slot, Range data, Instance& found) {
    uint64_t leaf = word(slot);
    // Most words of a module's data that point to memory do so to the same.
    uint64_t place = leaf / kMetadataAlignment;
    if (leaf % kExtentAlignment != 0 || leaf == 0 || place == no_metadata_) return false;
    Range metadata = metadata_around(space_, leaf, budget_);
    if (!metadata.contains(leaf)) no_metadata_ = place;
    if (!metadata.contains(leaf) || metadata.end - leaf < kNodeBytes) return false;
    uint64_t most = 0;
    for (const Layout& layout : {kFrom53, kFrom51}) {
      LeafVotes votes = look_at_leaf(space_, leaf, layout);
      uint64_t root = slot - 8 * votes.gib;
      if (votes.extents <= most || root < data.start || root > data.end - kNodeBytes) continue;
      most = votes.extents;
      Quantum quantum = votes.quantum[1] > votes.quantum[0] ? Quantum::k8 : Quantum::k16;
      found = {root, 0, layout, quantum, votes.padded > votes.unpadded ? kLargePad : 0};
    }
    return most > 0;
  }

  const Space& space_;
  Budget budget_{kSteps};
  uint64_t no_metadata_ = 0;
};

}  // namespace reachscan::heaps::jemalloc
