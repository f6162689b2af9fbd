// The pages of GLib's g_slice_alloc() (gslice.c, up to GLib 2.75), which are blocks to a scan.
//
//   slices of one size, from the page's start or a little later on | first free slice, number of
//   slices not in this list, next page, previous page | 2 words
//
// A page is aligned to its size, the least power of two that has room for 8 slices. GLib requests 2
// words less, for the header of the chunk behind it; of these, glibc lets the block have one or
// more. The pages with slices of one size form a ring. The first word of a free slice leads to the
// next one.
#pragma once

#include "memory/block_map.hpp"

namespace reachscan::sweeper {

class Slices {
 public:
  static constexpr uint64_t kUnit = 2 * heaps::kWord;  // sizes are multiples of that

  explicit Slices(const heaps::BlockMap& blocks) : blocks_(blocks) {}

  bool is_page(uint64_t block) const {
    uint64_t bytes = page_bytes(block);
    if (bytes < kLeastPage || bytes > kMostPage || block % bytes != 0) return false;
    if (block + bytes + kMostExtra < blocks_.end_of(block)) return false;
    uint64_t info = info_of(block), free = heaps::word(info);
    return (free == 0 || (free >= block && free < info)) && leads_back(info, kNext, kPrevious) &&
           leads_back(info, kPrevious, kNext);
  }

  // Where the slices of a page end.
  uint64_t info_of(uint64_t page) const { return page + page_bytes(page) - kInfo; }

  // Where a page ends. The rest of its block is not in use.
  uint64_t end_of(uint64_t page) const { return info_of(page) + 4 * heaps::kWord; }

  // Calls visit(slice) for those in the page's own list. Returns the size of each of its slices, or
  // 0 if the list is being changed.
  template <typename Visit>
  uint64_t each_free(uint64_t page, Visit visit) const {
    uint64_t info = info_of(page), slices = heaps::load<uint32_t>(info + heaps::kWord);
    for (uint64_t slice = heaps::word(info); slice != 0; slice = heaps::word(slice)) {
      if (slice % kUnit != 0 || slice < page || slice >= info) return 0;
      if (++slices > kMostSlices) return 0;
      visit(slice);
    }
    return slice_bytes(info - page, slices);
  }

  // Returns whether the address is that of a slice, or may be.
  [[gnu::noinline]] bool are_around(uint64_t address) const {
    uint64_t page = address % kUnit == 0 ? blocks_.block_of(address) : 0;
    return page != 0 && is_page(page) && address < info_of(page);
  }

  // Returns the size of the slice at an address, or 0 if there is none.
  uint64_t bytes_of(uint64_t address) const {
    if (!are_around(address)) return 0;
    uint64_t page = blocks_.block_of(address), bytes = each_free(page, [](uint64_t) {});
    return address + bytes <= info_of(page) ? bytes : 0;
  }

 private:
  static constexpr uint64_t kLeastPage = 128;
  static constexpr uint64_t kMostPage = 64 << 10;  // that of the system, and at least 8 KiB
  static constexpr uint64_t kMostExtra = 3 * heaps::kWord;  // less than what glibc would split off
  static constexpr uint64_t kInfo = 6 * heaps::kWord;
  static constexpr uint64_t kNext = 2 * heaps::kWord, kPrevious = 3 * heaps::kWord;
  static constexpr uint64_t kLeastSlices = 8;  // for which a page has room; it may hold more
  static constexpr uint64_t kMostSlices = 2 * kLeastSlices;

  // Returns the power of two that the block has room for, but for one word.
  uint64_t page_bytes(uint64_t block) const {
    uint64_t bytes = blocks_.end_of(block) - block + heaps::kWord;
    while ((bytes & (bytes - 1)) != 0) bytes &= bytes - 1;
    return bytes;
  }

  // Returns the smallest size of which so many slices, and no more, fit into the room of a page.
  static uint64_t slice_bytes(uint64_t room, uint64_t slices) {
    uint64_t bytes = kUnit;
    while (kLeastSlices * bytes + kInfo <= (room + kInfo) / 2 || room / bytes > slices)
      bytes += kUnit;
    return room / bytes == slices && kLeastSlices * bytes <= room ? bytes : 0;
  }

  bool leads_back(uint64_t info, uint64_t there, uint64_t back) const {
    uint64_t other = heaps::word(info + there);
    uint64_t page = blocks_.block_of(other);
    return page != 0 && other + kPrevious + heaps::kWord <= blocks_.end_of(page) &&
           heaps::word(other + back) == info;
  }

  const heaps::BlockMap& blocks_;
};

}  // namespace reachscan::sweeper
