// Writes what musl's mallocng records about its blocks: the context, a page of descriptors, and
// groups of slots.
#pragma once

#include <map>
#include <vector>

#include "heaps/musl/layout.hpp"
#include "memory.hpp"

namespace reachscan::tests {

class Musl {
 public:
  static constexpr uint32_t kFile = 9;
  static constexpr uint64_t kData = kWorld;
  static constexpr uint64_t kContext = kData + 0x9c0;
  static constexpr uint64_t kArea = kWorld + (64 << 20);
  static constexpr uint64_t kHeap = kWorld + (128 << 20);
  static constexpr uint64_t kHeapBytes = 16 << 20;

  Musl();

  // Each returns the descriptor: of slots in their own mapping, in a slot of another group, in the
  // unused part of a module's pages, and of one block in its own mapping.
  uint64_t mapped(uint64_t size_class, uint32_t slots, uint64_t pages);
  uint64_t nested(uint64_t outer, uint32_t slot, uint64_t size_class, uint32_t slots);
  uint64_t donated(uint64_t at, uint64_t size_class);
  uint64_t large(uint64_t pages, uint64_t bytes, uint64_t moved = 0);

  // Adds a block of `bytes` bytes that starts `moved` bytes into its slot. Returns its address.
  uint64_t block(uint64_t meta, uint32_t slot, uint64_t bytes, uint64_t moved = 0);

  Memory memory;
  std::map<uint64_t, uint64_t> blocks;  // sizes

 private:
  uint64_t descriptor(uint64_t start, uint64_t size_class, uint32_t slots, uint64_t pages,
                      bool freeable);
  void take(uint64_t meta, uint32_t slot);
  void head(uint64_t block, uint32_t slot, uint64_t distance, uint64_t reserved);

  uint64_t next_meta_ = kArea + heaps::musl::kDescriptorsField;
  uint64_t next_page_ = kHeap;
};

}  // namespace reachscan::tests
