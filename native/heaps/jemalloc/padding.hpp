// Whether an extent of a large block is a page longer than the block, which then starts somewhere
// in the first page. That is a setting, and most extents reveal it. Since 5.3.1 a block may have
// any number of pages, and its class is the next larger one: then the length of an extent may fit
// both settings.
#pragma once

#include "heaps/jemalloc/metadata.hpp"
#include "heaps/jemalloc/tree.hpp"

namespace reachscan::heaps::jemalloc {

enum class Padding : uint8_t { kUnknown, kNone, kPage };

inline Padding padding_of(const Extent& extent, uint64_t size, const Instance& instance) {
  uint64_t length = extent.end - extent.start;
  uint64_t page = instance.tree.page();
  if (extent.block != extent.start || length == size + page) return Padding::kPage;
  // The shortest extent of its class.
  uint64_t smaller = size_of_class(extent.size_class - 1, instance.quantum);
  return length == smaller + page ? Padding::kNone : Padding::kUnknown;
}

// Continues until an extent decides. If none does, all may have the lengths of their classes;
// otherwise they are padded, which is the default.
inline uint64_t find_padding(const Space& space, const Instance& instance) {
  const Tree& tree = instance.tree;
  Padding found = Padding::kUnknown;
  bool are_classes = true;
  Budget budget = budget_of_entries(space);
  auto is_node = [&](uint64_t at, uint64_t bytes) { return space.readable(at, bytes); };
  each_leaf(instance, is_node, [&](uint64_t leaf, uint64_t base) {
    Range pages{base > 0 ? base : tree.page(), base + tree.reach()};
    each_entry(space, tree, leaf, pages, budget, [&](uint64_t at, uint64_t page) {
      LeafEntry entry = read_entry(at, tree, instance.layout);
      if (!space.readable(entry.extent, tree.extent_bytes())) return page + tree.page();
      Extent extent = read_extent(entry.extent, tree, instance.layout);
      if (extent.start != page || extent.end <= page || !agree(extent, entry))
        return page + tree.page();
      uint64_t size = size_of_class(extent.size_class, instance.quantum);
      if (!extent.has_blocks() || extent.is_slab || size < tree.min_large()) return extent.end;
      found = padding_of(extent, size, instance);
      are_classes = are_classes && extent.end - page == size;
      return found == Padding::kUnknown ? extent.end : 0;
    });
    return found == Padding::kUnknown;
  });
  if (found == Padding::kUnknown) found = are_classes ? Padding::kNone : Padding::kPage;
  return found == Padding::kPage ? tree.page() : 0;
}

}  // namespace reachscan::heaps::jemalloc
