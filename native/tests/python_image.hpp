// Writes CPython's structures: arenas of its allocator, types and objects.
#pragma once

#include "heaps/heap.hpp"
#include "hosted.hpp"
#include "memory.hpp"

namespace reachscan::tests {

// Differences between the two forms of the allocator.
struct PoolForm {
  uint64_t pool_bytes, alignment;
};
constexpr PoolForm kOldPools{4096, 8}, kNewPools{16384, 16};

class Python {
 public:
  static constexpr uint64_t kVariables = kWorld, kCode = kWorld + (1 << 20),
                            kTable = kWorld + (1 << 24), kTableBytes = 16 * 48,
                            kArena = kWorld + (1 << 28) + heaps::kPage, kPoolHeader = 48;

  explicit Python(PoolForm pools = kNewPools);

  // Takes a pool for blocks of that size.
  uint64_t add_pool(uint64_t block_bytes);
  // Takes a block from the last pool.
  uint64_t take();
  // Puts a block of the last pool into its free list.
  void free(uint64_t block);
  // Requires the table of arenas to be complete.
  void add_table(heaps::BlockMap& blocks) const;

  // Adds a type to the interpreter's data.
  uint64_t add_type(const char* name, uint64_t flags, uint64_t base = 0);
  // Makes a block of the last pool an object that starts `before` bytes into it.
  uint64_t make_object(uint64_t block, uint64_t before, uint64_t type, uint64_t references);

  Memory memory;
  uint64_t first_pool, last_pool = 0, type_of_types, object_type;

 private:
  void describe_arena();

  PoolForm pools_;
  uint64_t untaken_;
  uint64_t next_variable_ = kVariables + 64;
};

}  // namespace reachscan::tests
