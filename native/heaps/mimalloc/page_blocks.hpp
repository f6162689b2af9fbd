// The blocks of a page, organised alike in all releases: some were handed out, and those of them
// that were freed are in one of three lists. The counters of the page prove the lists.
#pragma once

#include "heaps/heap.hpp"

namespace reachscan::heaps::mimalloc {

struct GivenOut {
  uint64_t first;  // block
  uint64_t size;
  uint64_t capacity;                      // number of blocks handed out
  uint64_t used;                          // number of them that their thread has not got back
  uint64_t free, freed, freed_by_others;  // the first of each list, with flags

  uint64_t end() const { return first + capacity * size; }
};

class PageBlocks {
 public:
  explicit PageBlocks(const Enumeration& found) : found_(found) {}

  // Puts the blocks in use into the map. Returns what is wrong, null if nothing is.
  const char* claim(const GivenOut& page) {
    for (uint64_t i = 0; i < page.capacity; ++i) found_.blocks.add_live(page.first + i * page.size);
    close_at(page.end());
    found_.totals.blocks += page.capacity;
    found_.totals.bytes += page.capacity * page.size;
    uint64_t count = 0;
    if (!drop_list(page, page.free, count) || !drop_list(page, page.freed, count))
      return kElsewhere;
    if (count + page.used != page.capacity)
      return "a page has another number of free blocks than it says";
    // What other threads freed counts as used.
    return drop_list(page, page.freed_by_others, count) ? nullptr : kElsewhere;
  }

  void drop(uint64_t block, uint64_t size) {
    found_.blocks.drop_live(block);
    found_.totals.subtract(size);
  }

  void close_at(uint64_t end) {
    if (!found_.blocks.is_live(end)) found_.blocks.add_boundary(end);
  }

 private:
  static constexpr const char* kElsewhere = "a list of free blocks leads elsewhere";

  // Adds the length of the list to `count`.
  bool drop_list(const GivenOut& page, uint64_t block, uint64_t& count) {
    constexpr uint64_t kFlags = 3;
    for (block &= ~kFlags; block != 0; block = word(block), ++count) {
      uint64_t distance = block - page.first;
      if (distance >= page.capacity * page.size || distance % page.size != 0 ||
          !found_.blocks.is_live(block))
        return false;
      drop(block, page.size);
    }
    return true;
  }

  Enumeration found_;
};

}  // namespace reachscan::heaps::mimalloc
