// Writes what jemalloc 5.3 keeps about its blocks: the tree of extents, slabs and large blocks, and
// the cache of a thread.
#pragma once

#include <map>
#include <vector>

#include "heaps/jemalloc/layout.hpp"
#include "memory.hpp"

namespace reachscan::tests {

class Jemalloc {
 public:
  static constexpr uint32_t kFile = 9;
  static constexpr uint64_t kData = kWorld;
  static constexpr uint64_t kMetadata = kWorld + (64 << 20);
  static constexpr uint64_t kHeap = kWorld + (128 << 20);
  static constexpr uint64_t kStack = kWorld + (256 << 20);

  explicit Jemalloc(const heaps::jemalloc::Tree& tree);

  // Slots of a class in so many pages; `free` are the numbers of those that are. Returns the
  // extent.
  uint64_t slab(uint32_t size_class, uint64_t pages, const std::vector<unsigned>& free);
  // A block with an extent of its own, `offset` bytes into its first page, so many pages smaller
  // than its class.
  uint64_t large(uint32_t size_class, uint64_t offset, uint64_t less_pages = 0);
  // Pages that hold nothing now.
  uint64_t unused(uint64_t pages);
  // Has the leaf below that of the heap know pages that hold nothing. In a tree of three levels.
  void leaf_without_blocks();
  // Gives a thread a cache with these blocks, all of one class.
  abi::Thread thread(uint32_t size_class, const std::vector<uint64_t>& cached);

  Memory memory;
  std::map<uint64_t, uint64_t> blocks;  // sizes
  uint64_t leaf = 0;

 private:
  uint64_t allot(uint64_t bytes);
  uint64_t extent(uint64_t pages, uint32_t size_class, bool is_slab, bool is_active);

  heaps::jemalloc::Tree tree_;
  uint64_t slot_ = 0;  // what leads to the leaf
  uint64_t next_metadata_ = kMetadata + 256;
  uint64_t next_page_ = kHeap;
};

}  // namespace reachscan::tests
