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
  static constexpr uint64_t kLateBlocks = kWorld + (288 << 20);

  explicit Jemalloc(const heaps::jemalloc::Tree& tree);

  // Adds slots of a class in that many pages. `free` are the numbers of the free ones. Returns the
  // extent.
  uint64_t slab(uint32_t size_class, uint64_t pages, const std::vector<unsigned>& free);
  // Adds a block with its own extent, `offset` bytes into its first page, `less_pages` pages
  // smaller than its class.
  uint64_t large(uint32_t size_class, uint64_t offset, uint64_t less_pages = 0);
  // Adds pages that hold nothing now.
  uint64_t unused(uint64_t pages);
  // Fills the leaf below that of the heap with pages that hold nothing. For a tree of three levels.
  void leaf_without_blocks();
  // Gives a thread a cache with these blocks, all of one class. Its stacks are in the metadata, or
  // in the block at `stacks`, as until 5.3.0.
  abi::Thread thread(uint32_t size_class, const std::vector<uint64_t>& cached, uint64_t stacks = 0);

  // The same for a thread of a program that has loaded the allocator's library later. `number` is 0
  // or 1; the other thread's variables follow those of a smaller library.
  abi::Thread late_thread(unsigned number, uint32_t size_class,
                          const std::vector<uint64_t>& cached);

  Memory memory;
  std::map<uint64_t, uint64_t> blocks;  // sizes
  uint64_t leaf = 0;
  bool has_statistics = true;  // of caches that are filled from now on

 private:
  uint64_t allot(uint64_t bytes);
  void fill_cache(uint64_t slow, uint32_t size_class, const std::vector<uint64_t>& cached,
                  uint64_t stacks);
  uint64_t extent(uint64_t pages, uint32_t size_class, bool is_slab, bool is_active);

  heaps::jemalloc::Tree tree_;
  uint64_t slot_ = 0;  // leads to the leaf
  uint64_t next_metadata_ = kMetadata + 256;
  uint64_t next_page_ = kHeap;
};

}  // namespace reachscan::tests
