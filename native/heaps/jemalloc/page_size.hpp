// jemalloc is built for one page size, and works on machines with smaller pages, too: Debian's for
// aarch64 has pages of 64 KiB everywhere. Such a heap is not walked, but it can be named.
#pragma once

#include "heaps/images.hpp"
#include "heaps/jemalloc/layout.hpp"

namespace reachscan::heaps::jemalloc {

// A tree of two levels for pages of another size. It splits the bits of an address above a page
// evenly.
struct OtherTree {
  unsigned page_bits;

  constexpr unsigned node_bits() const { return (kAddressBits - page_bits) / 2; }
  constexpr uint64_t slots() const { return 1ull << node_bits(); }
  constexpr uint64_t node_bytes() const { return 8 * slots(); }
  constexpr unsigned root_shift() const { return page_bits + node_bits(); }
};

class PageSize {
 public:
  PageSize(const Space& space, uint64_t image) : space_(space) {
    const abi::Mapping* m = space.find(image);
    if (m == nullptr) return;
    for (uint32_t file = m->file; m != space.end(); ++m) {
      if (m->file != file || !Space::is_module_data(*m)) continue;
      data_ = data_of_module(space, m);
      return;
    }
  }

  // Returns the size of the pages in KiB, if it is not that of this machine; 0 otherwise.
  unsigned other() const {
    for (unsigned bits : {14u, 16u})
      if (1ull << bits != kPage && is_there({bits})) return 1u << bits >> 10;
    return 0;
  }

 private:
  static constexpr unsigned kEnough = 4;  // extents that are where they say

  bool is_there(const OtherTree& tree) const {
    if (data_.end - data_.start < tree.node_bytes()) return false;
    uint64_t last = 0;
    for (uint64_t slot = align_up(data_.start, 8); slot + 8 <= data_.end; slot += 8) {
      if (slot % kPage == 0) slot = space_.skip_absent(slot);
      if (slot + 8 > data_.end) return false;
      uint64_t leaf = word(slot);
      if (leaf == 0 || leaf == last || leaf % kExtentAlignment != 0) continue;
      last = leaf;
      if (is_leaf(tree, slot, leaf)) return true;
    }
    return false;
  }

  // Returns whether all extents that the leaf leads to are where their places in leaf and root say.
  bool is_leaf(const OtherTree& tree, uint64_t slot, uint64_t leaf) const {
    if (!space_.readable(leaf, tree.node_bytes()) ||
        !space_.is_anonymous(leaf, leaf + tree.node_bytes()))
      return false;
    unsigned found = 0;
    for (uint64_t at = leaf; at + 8 <= leaf + tree.node_bytes(); at += 8) {
      if (at % kPage == 0) at = space_.skip_absent(at);
      if (at + 8 > leaf + tree.node_bytes()) break;
      uint64_t extent = word(at) << 16 >> 16 & ~(kExtentAlignment - 1);
      if (extent == 0 || !space_.readable(extent, kExtentBytes)) continue;
      if (!is_extent_of(tree, slot, (at - leaf) / 8, extent)) return false;
      ++found;
    }
    return found >= kEnough;
  }

  bool is_extent_of(const OtherTree& tree, uint64_t slot, uint64_t index, uint64_t extent) const {
    uint64_t start = word(extent + kAddressField) >> tree.page_bits;
    uint64_t pages = word(extent + kSizeField) >> tree.page_bits;
    uint64_t root = slot - 8 * (start >> tree.node_bits());
    return index - (start & (tree.slots() - 1)) < pages && root >= data_.start &&
           data_.end - root >= tree.node_bytes();
  }

  const Space& space_;
  Range data_{0, 0};
};

}  // namespace reachscan::heaps::jemalloc
