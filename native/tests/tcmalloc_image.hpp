// Writes what gperftools' tcmalloc records about its blocks: classes, the tree of spans, central
// lists, and the caches of threads.
#pragma once

#include <map>
#include <vector>

#include "heaps/tcmalloc/layout.hpp"
#include "memory.hpp"

namespace reachscan::tests {

class Tcmalloc {
 public:
  static constexpr uint32_t kFile = 9;
  static constexpr uint64_t kData = kWorld;
  static constexpr uint64_t kMetadata = kWorld + (64 << 20);
  static constexpr uint64_t kHeap = kWorld + (128 << 20);
  // After the root of the tree; all of this is in the module's data.
  static constexpr uint64_t kRoot = kData + 0x780;
  static constexpr uint64_t kCentral = kRoot + heaps::tcmalloc::kRootBytes + 0x40;
  static constexpr uint64_t kClasses =
      kCentral + heaps::tcmalloc::kMaxClasses * heaps::tcmalloc::Central::kPaddedBytes + 12;
  static constexpr uint64_t kFirstCache = kClasses + 0x800 - 12;  // points to a thread's cache
  static constexpr uint64_t kExitedCache = kFirstCache + 8;

  // `links` is the offset of the links in a cache, `stride` the distance of central lists. Both
  // differ between releases.
  explicit Tcmalloc(uint64_t links, uint64_t stride = heaps::tcmalloc::Central::kPaddedBytes);

  // Adds blocks of a class in `pages` pages. `free` are the numbers of those in the span's own
  // list. Returns the span.
  uint64_t small(unsigned size_class, uint64_t pages, const std::vector<unsigned>& free);
  // Adds a block with a span of its own.
  uint64_t large(uint64_t pages);
  uint64_t unused(uint64_t pages);
  // Adds free blocks that threads pass to each other.
  void chain(unsigned size_class, const std::vector<uint64_t>& blocks);
  // Adds the cache of another thread, which holds these blocks, all of one class.
  uint64_t cache(unsigned size_class, const std::vector<uint64_t>& blocks);
  // Adds the empty cache of a thread that has exited; a variable still points to it.
  void exited_cache();
  // Makes a block an object of a C++ class that is defined in the allocator's module.
  void object(uint64_t block, const char* type);

  static uint32_t size_of(unsigned size_class);
  heaps::tcmalloc::Central central(unsigned size_class) const;

  Memory memory;
  std::map<uint64_t, uint64_t> blocks;  // sizes
  uint64_t leaf = 0;

 private:
  uint64_t allot(uint64_t bytes);
  uint64_t empty_cache();
  uint64_t span(uint64_t pages, uint32_t bits);
  void link(const std::vector<uint64_t>& list);

  uint64_t links_, stride_;
  uint64_t next_metadata_ = kMetadata + 64;
  uint64_t next_page_ = kHeap;
  uint64_t last_cache_ = 0;
};

}  // namespace reachscan::tests
