// Iterates over the tree of extents.
#pragma once

#include "heaps/jemalloc/layout.hpp"

namespace reachscan::heaps::jemalloc {

// For iterating over all of it: one entry per existing page is examined, and some in between.
inline Budget budget_of_entries(const Space& space) {
  uint64_t pages = 0;
  for (const abi::Mapping& m : space) pages += (m.end - m.start) / kPage;
  return Budget(8 * kTreeOf48.slots() + 8 * pages);
}

// Calls visit(leaf, address of the first page that it covers) for all leaves. Stops and returns
// false when visit or is_node(address, its bytes) returns false.
template <typename IsNode, typename Visit>
bool each_leaf(const Instance& instance, IsNode is_node, Visit visit) {
  const Tree& tree = instance.tree;
  auto visit_leaf = [&](uint64_t leaf, uint64_t base) {
    return leaf == 0 || (is_node(leaf, tree.leaf_bytes()) && visit(leaf, base));
  };
  for (uint64_t i = 0; i < tree.slots(); ++i) {
    uint64_t node = word(instance.root + 8 * i), base = i << tree.root_shift();
    if (tree.levels == 2) {
      if (!visit_leaf(node, base)) return false;
      continue;
    }
    if (node == 0) continue;
    if (!is_node(node, tree.node_bytes())) return false;
    for (uint64_t j = 0; j < tree.slots(); ++j)
      if (!visit_leaf(word(node + 8 * j), base + j * tree.reach())) return false;
  }
  return true;
}

// Calls visit(address of its entry, address of the page) for the non-empty entries of a leaf,
// within the budget. visit returns where to continue: an address after the page, or 0 to stop.
template <typename Visit>
void each_entry(const Space& space, const Tree& tree, uint64_t leaf, Range pages, Budget& budget,
                Visit visit) {
  uint64_t known = 0;  // a page of the leaf that was written to
  for (uint64_t page = pages.start; page != 0 && page < pages.end && budget.spend(1);) {
    uint64_t at = tree.entry_at(leaf, page);
    if (at / kPage != known) {
      uint64_t written = space.skip_absent(at);
      page += (written - at) / tree.entry_bytes * tree.page();
      known = written / kPage;
      if (written != at) continue;
    }
    page = word(at) == 0 ? page + tree.page() : visit(at, page);
  }
}

inline bool agree(const Extent& extent, const LeafEntry& entry) {
  return !extent.has_blocks() ||
         (extent.is_slab == entry.is_slab && extent.size_class == entry.size_class);
}

}  // namespace reachscan::heaps::jemalloc
