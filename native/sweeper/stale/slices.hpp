// The pages of GLib's g_slice_alloc() (up to GLib 2.75), which are blocks to a scan.
//
//   objects of one size, from the page's start or a little later on | first free object, number of
//   objects in use, next page, previous page | 2 words
//
// A page is aligned to its size, a power of two. GLib requests 2 words less, for the header of the
// chunk behind it; of these, glibc lets the block have one. The pages with objects of one size form
// a ring.
#pragma once

#include "memory/block_map.hpp"

namespace reachscan::sweeper {

class Slices {
 public:
  explicit Slices(const heaps::BlockMap& blocks) : blocks_(blocks) {}

  bool is_page(uint64_t block) const {
    uint64_t size = blocks_.end_of(block) - block + heaps::kWord;
    if (size < kLeastPage || (size & (size - 1)) != 0 || block % size != 0) return false;
    uint64_t info = block + size - kInfoToEnd, free = heaps::word(info);
    bool has_free = free >= block && free < info;
    return (free == 0 || has_free) && leads_back(info, kNext, kPrevious) &&
           leads_back(info, kPrevious, kNext);
  }

 private:
  static constexpr uint64_t kLeastPage = 128;
  static constexpr uint64_t kInfoToEnd = 6 * heaps::kWord;
  static constexpr uint64_t kNext = 2 * heaps::kWord, kPrevious = 3 * heaps::kWord;

  bool leads_back(uint64_t info, uint64_t there, uint64_t back) const {
    uint64_t other = heaps::word(info + there);
    uint64_t page = blocks_.block_of(other);
    return page != 0 && other + kPrevious + heaps::kWord <= blocks_.end_of(page) &&
           heaps::word(other + back) == info;
  }

  const heaps::BlockMap& blocks_;
};

}  // namespace reachscan::sweeper
