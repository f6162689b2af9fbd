// Lays out arenas and types as CPython 3.9 to 3.14 does.
#include "python_image.hpp"

#include "heaps/pymalloc/arenas.hpp"
#include "sweeper/python/types.hpp"

namespace reachscan::tests {

using namespace heaps::pymalloc;

Python::Python(PoolForm pools) : pools_(pools) {
  memory.map(kVariables, 16 * heaps::kPage, kReadWrite, abi::kFileBacked, 1);
  memory.map(kCode, heaps::kPage, wire::kRead | wire::kExecute, abi::kFileBacked, 1);
  memory.map(kTable, heaps::kPage);
  memory.map(kArena, kPools * pools.pool_bytes);
  first_pool = untaken_ = heaps::align_up(kArena, pools.pool_bytes);
  memory.put(kVariables, kTable);
  type_of_types = object_type = 0;
  type_of_types = add_type("type", sweeper::kTypeSubclass | sweeper::kHasCollectorHead);
  memory.put(type_of_types + sweeper::kObjectType, type_of_types);
  object_type = add_type("object", 0);
}

void Python::describe_arena() {
  uint64_t end = kArena + kPools * pools_.pool_bytes;
  auto pools = static_cast<uint32_t>((end - first_pool) / pools_.pool_bytes);
  auto taken = static_cast<uint32_t>((untaken_ - first_pool) / pools_.pool_bytes);
  memory.put(kTable, kArena);
  memory.put(kTable + kNextPool, untaken_);
  memory.store(kTable + kFreeCount, pools - taken);
  memory.store(kTable + kPoolCount, pools);
}

uint64_t Python::add_pool(uint64_t block_bytes) {
  last_pool = untaken_;
  untaken_ += pools_.pool_bytes;
  memory.store(last_pool + kSizeClass, static_cast<uint32_t>(block_bytes / pools_.alignment - 1));
  memory.store(last_pool + kNextOffset, static_cast<uint32_t>(kPoolHeader));
  memory.store(last_pool + kLastOffset, static_cast<uint32_t>(pools_.pool_bytes - block_bytes));
  describe_arena();
  return last_pool;
}

uint64_t Python::take() {
  auto next = heaps::load<uint32_t>(last_pool + kNextOffset);
  uint64_t bytes = pools_.pool_bytes - heaps::load<uint32_t>(last_pool + kLastOffset);
  memory.store(last_pool + kNextOffset, static_cast<uint32_t>(next + bytes));
  memory.store(last_pool, heaps::load<uint32_t>(last_pool) + 1);
  return last_pool + next;
}

void Python::free(uint64_t block) {
  memory.put(block, heaps::word(last_pool + kFreeBlock));
  memory.put(last_pool + kFreeBlock, block);
  memory.store(last_pool, heaps::load<uint32_t>(last_pool) - 1);
}

void Python::add_table(heaps::BlockMap& blocks) const {
  blocks.add_live(kTable);
  blocks.add_boundary(kTable + kTableBytes);
  blocks.add_region({kTable, kTable + heaps::kPage, wire::kThreadHeap, 0, 0, 0});
  blocks.add_boundary(kTable + heaps::kPage);
}

uint64_t Python::add_type(const char* name, uint64_t flags, uint64_t base) {
  uint64_t type = next_variable_, text = type + sweeper::kTypeBytes;
  next_variable_ = heaps::align_up(text + std::strlen(name) + 1, 16);
  std::strcpy(reinterpret_cast<char*>(text), name);
  memory.put(type, 1);
  memory.put(type + sweeper::kObjectType, type_of_types);
  memory.put(type + sweeper::kTypeName, text);
  memory.put(type + sweeper::kTypeBasicSize, sweeper::kObjectBytes);
  memory.put(type + sweeper::kTypeDealloc, kCode);
  memory.put(type + sweeper::kTypeFlags, flags | sweeper::kIsReady);
  memory.put(type + sweeper::kTypeBase, base);
  return type;
}

uint64_t Python::make_object(uint64_t block, uint64_t before, uint64_t type, uint64_t references) {
  memory.put(block + before, references);
  memory.put(block + before + sweeper::kObjectType, type);
  return block + before;
}

}  // namespace reachscan::tests
