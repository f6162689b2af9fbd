// Finds the tree of all extents in stripped, dynamic and static programs alike, whatever prefix its
// functions have. Its root is an array in the module's data, so long that few modules have room for
// it. What a word of it points to is a leaf if it is in a mapping of metadata, and if the extents
// that the leaf leads to agree that they are in that leaf's pages.
#pragma once

#include "heaps/images.hpp"
#include "heaps/jemalloc/metadata.hpp"
#include "heaps/jemalloc/padding.hpp"

namespace reachscan::heaps::jemalloc {

constexpr std::size_t kMaxInstances = 8;
// Entries of a leaf that are examined before one must have been consistent, and extents from which
// layout and classes are determined.
constexpr uint64_t kProbedExtents = 1 << 12;
// At most this many entries are examined in all leaves of a node together.
constexpr uint64_t kEntriesOfNode = 1 << 22;

// The result of examining the extents of a leaf under one layout.
struct LeafVotes {
  uint64_t first = 0;  // address of an extent
  uint64_t extents = 0;
  uint64_t quantum[2] = {};  // how many have a possible size

  void count(const Extent& extent, const Tree& tree) {
    if (!extent.has_blocks()) return;
    ++extents;
    uint64_t length = extent.end - extent.start;
    for (Quantum each : {Quantum::k16, Quantum::k8}) {
      uint64_t size = size_of_class(extent.size_class, each);
      bool slab = extent.is_slab && length % size == 0 && length / size <= tree.max_slab_slots();
      bool large = !extent.is_slab && size >= tree.min_large();
      if (slab || (large && (length == size || length == size + tree.page())))
        ++quantum[static_cast<unsigned>(each)];
    }
  }
};

inline LeafVotes examine_leaf(const Space& space, const Tree& tree, uint64_t leaf,
                              const Layout& layout, Budget& budget) {
  LeafVotes votes;
  // The extents of the leaf show which memory it covers. The entry of its first page is skipped.
  Range pages{tree.page(), tree.reach()};
  each_entry(space, tree, leaf, pages, budget, [&](uint64_t at, uint64_t page) -> uint64_t {
    LeafEntry entry = read_entry(at, tree, layout);
    if (!space.readable(entry.extent, tree.extent_bytes())) return page + tree.page();
    Extent extent = read_extent(entry.extent, tree, layout);
    bool is_first_page = extent.end > extent.start && extent.start % tree.reach() == page;
    if (!is_first_page || !agree(extent, entry)) return page + tree.page();
    if (votes.first == 0) votes.first = extent.start;
    if ((votes.first ^ extent.start) >> tree.leaf_shift() != 0) return page + tree.page();
    votes.count(extent, tree);
    if (votes.extents == kProbedExtents) return 0;
    return page + (extent.end - extent.start);
  });
  return votes;
}

class Search {
 public:
  explicit Search(const Space& space) : space_(space) {}

  std::size_t find(Instance (&found)[kMaxInstances]) {
    std::size_t count = 0;
    each_module_data(space_, [&](uint32_t file, Range data) {
      for (uint64_t slot = align_up(data.start, 8);
           data.end - data.start >= kTreeOf57.node_bytes() && slot + 8 <= data.end; slot += 8) {
        if (slot % kPage == 0) slot = space_.skip_absent(slot);
        if (slot + 8 > data.end || count == kMaxInstances) break;
        if (!is_instance(slot, data, found[count])) continue;
        found[count].file = file;
        found[count].large_pad = find_padding(space_, found[count]);
        // Skips the other leaves of the same root.
        slot = found[count].root + found[count].tree.node_bytes() - 8;
        ++count;
      }
    });
    return count;
  }

 private:
  static constexpr uint64_t kSteps = 1 << 20;

  // Returns whether `slot` is in a root; if so, sets the instance.
  bool is_instance(uint64_t slot, Range data, Instance& found) {
    uint64_t node = word(slot);
    if (!is_node(node, kTreeOf57.node_bytes())) return false;
    most_ = 0;
    for (const Tree& tree : {kTreeOf48, kTreeOf16KiB, kTreeOf64KiB}) {
      // No extent is where a tree for pages of another size would have it.
      if (most_ > 0) break;
      Budget entries(2 * tree.slots());
      look(slot, node, tree, data, entries, found);
    }
    examine_leaves(slot, node, data, found);
    return most_ > 0;
  }

  // The first leaf with blocks decides. The memory covered by the leaves before it, 128 MiB each,
  // may contain none.
  void examine_leaves(uint64_t slot, uint64_t node, Range data, Instance& found) {
    Budget entries(kEntriesOfNode);
    uint64_t end = node + kTreeOf57.node_bytes(), before = most_;
    for (uint64_t at = node; at < end && most_ == before && !entries.empty(); at += 8) {
      at = space_.skip_absent(at);
      if (at >= end) return;
      if (word(at) != 0 && !look(slot, word(at), kTreeOf57, data, entries, found)) return;
    }
  }

  // Returns whether this many bytes at `node` are in a mapping of metadata.
  bool is_node(uint64_t node, uint64_t bytes) {
    // Most words of a module's data that point to memory point to the same memory.
    uint64_t place = node / kMetadataAlignment;
    if (node % kExtentAlignment != 0 || node == 0 || place == no_metadata_) return false;
    Range metadata = metadata_around(space_, node, budget_);
    if (!metadata.contains(node)) no_metadata_ = place;
    return metadata.contains(node) && metadata.end - node >= bytes;
  }

  // The layout that most extents agree with wins. Returns false if there can be no leaf.
  bool look(uint64_t slot, uint64_t leaf, const Tree& tree, Range data, Budget& entries,
            Instance& found) {
    if (!is_node(leaf, tree.leaf_bytes())) return false;
    for (const Layout& layout : {kFrom53, kFrom51}) {
      LeafVotes votes = examine_leaf(space_, tree, leaf, layout, entries);
      uint64_t root = slot - 8 * (votes.first >> tree.root_shift());
      if (votes.extents <= most_ || root < data.start || root > data.end - tree.node_bytes())
        continue;
      most_ = votes.extents;
      Quantum quantum = votes.quantum[1] > votes.quantum[0] ? Quantum::k8 : Quantum::k16;
      found = {root, 0, tree, layout, quantum, 0};
    }
    return true;
  }

  const Space& space_;
  Budget budget_{kSteps};
  uint64_t no_metadata_ = 0;
  uint64_t most_ = 0;
};

}  // namespace reachscan::heaps::jemalloc
