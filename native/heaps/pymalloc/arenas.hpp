// CPython's own allocator for small blocks (Objects/obmalloc.c):
//
//   table   descriptions of the arenas; a variable of the interpreter points to it
//   arena   256 KiB or 1 MiB from mmap; pools are taken from it, the lowest first
//   pool    4 or 16 KiB; blocks of one size are taken from it, the lowest first
//
// The proof is by sums: a pool's count of blocks in use plus the length of its free list is the
// number of blocks ever taken from it; an arena counts its free pools. While a thread is allocating
// or freeing, the sums do not match.
#pragma once

#include "heaps/heap.hpp"

namespace reachscan::heaps::pymalloc {

// struct arena_object
constexpr uint64_t kEntryBytes = 48, kNextPool = 8, kFreeCount = 16, kPoolCount = 20,
                   kFreePools = 24;
constexpr uint64_t kMinEntries = 16;  // doubled when they are too few
// struct pool_header
constexpr uint64_t kHeaderBytes = 48, kFreeBlock = 8, kNextInList = 16, kArenaIndex = 32,
                   kSizeClass = 36, kNextOffset = 40, kLastOffset = 44;
constexpr uint64_t kPools = 64;  // per arena; one less if it does not start at a pool boundary
constexpr uint64_t kPoolSizes[] = {4096, 16384};  // the larger since 3.10
constexpr uint64_t kAlignments[] = {8, 16};       // the larger since 3.7
constexpr uint64_t kMostBytes = 512;              // of a block; malloc() returns what is larger
constexpr uint64_t kMaxBlocks = kPoolSizes[1] / kAlignments[0];

constexpr std::size_t kMaxArenaCount = 1 << 16;

// An arena from which at least one pool was taken.
struct Arena {
  uint64_t entry;
  uint64_t pool_bytes;
  uint64_t first, untaken, end;  // pools
  uint32_t index;
  uint32_t reserved;

  bool is_pool(uint64_t pool, uint64_t& block_bytes) const {
    block_bytes = pool_bytes - load<uint32_t>(pool + kLastOffset);
    if (load<uint32_t>(pool + kArenaIndex) != index) return false;
    uint64_t size_class = load<uint32_t>(pool + kSizeClass);
    for (uint64_t alignment : kAlignments)
      if (block_bytes == (size_class + 1) * alignment) return true;
    return false;
  }

  // Bit i is set if pool i is free. Returns false if the sums do not match.
  bool find_free_pools(uint64_t& free) const {
    uint64_t count = (end - untaken) / pool_bytes;
    free = 0;
    for (uint64_t pool = word(entry + kFreePools); pool != 0; pool = word(pool + kNextInList)) {
      uint64_t number = (pool - first) / pool_bytes;
      bool is_taken = pool >= first && pool < untaken;
      if (!is_taken || pool % pool_bytes != 0 || (free >> number & 1) != 0) return false;
      if (load<uint32_t>(pool) != 0) return false;
      free |= 1ull << number;
      ++count;
    }
    return count == load<uint32_t>(entry + kFreeCount);
  }
};

// The blocks of a pool.
class Pool {
 public:
  // Returns false if the sums do not match.
  bool read(const Arena& arena, uint64_t pool) {
    uint64_t used = load<uint32_t>(pool), next = load<uint32_t>(pool + kNextOffset);
    if (used == 0 || !arena.is_pool(pool, block_bytes)) return false;
    if (next < kHeaderBytes || next > arena.pool_bytes) return false;
    first = pool + kHeaderBytes;
    taken = (next - kHeaderBytes) / block_bytes;
    if ((next - kHeaderBytes) % block_bytes != 0) return false;
    uint64_t count = 0;
    for (uint64_t at = word(pool + kFreeBlock); at != 0; at = word(at), ++count) {
      uint64_t offset = at - first, block = offset / block_bytes;
      bool is_block = at >= first && at < pool + next;
      if (!is_block || offset % block_bytes != 0 || !add_free(block)) return false;
    }
    return used + count == taken;
  }

  bool is_free(uint64_t block) const { return (free_[block / 64] >> block % 64 & 1) != 0; }

  uint64_t first, block_bytes, taken;

 private:
  // Returns false if it is already free.
  bool add_free(uint64_t block) {
    uint64_t bit = 1ull << block % 64;
    if ((free_[block / 64] & bit) != 0) return false;
    free_[block / 64] |= bit;
    return true;
  }

  uint64_t free_[kMaxBlocks / 64] = {};
};

// All arenas, sorted by address. The tables are blocks of another allocator, whose blocks must
// already be in the map.
class Arenas : public List<Arena> {
 public:
  Arenas(const Space& space, const BlockMap& blocks, MapMemory map)
      : List<Arena>(map, kMaxArenaCount), space_(space), blocks_(blocks) {
    for (const abi::Mapping& m : space_) {
      // The structures are known for words of eight bytes.
      if (kWord != 8 || !Space::is_module_data(m)) continue;
      for (uint64_t page = m.start; page < m.end; page += kPage)
        if (space_.skip_absent(page) == page) search_for_tables(page);
    }
    heaps::sort(*this, [](const Arena& a, const Arena& b) { return a.first < b.first; });
  }

  // How many entries of the tables refer to memory that does not look like an arena.
  uint64_t unknown_entries() const { return unknown_entries_; }

 private:
  void search_for_tables(uint64_t page) {
    for (uint64_t at = page; at < page + kPage; at += 8) {
      uint64_t value = word(at);
      // Adjacent variables point to the same table.
      if (value == last_ || !may_be_table(value)) continue;
      last_ = value;
      add_all(value);
    }
  }

  bool may_be_table(uint64_t value) const {
    if (!blocks_.may_point(value) || !blocks_.is_live(value)) return false;
    uint64_t entries = (blocks_.end_of(value) - value) / kEntryBytes;
    uint64_t used = kMinEntries;
    while (2 * used <= entries) used *= 2;
    return entries >= used && entries - used < kPage / kEntryBytes;
  }

  void add_all(uint64_t table) {
    uint64_t count = (blocks_.end_of(table) - table) / kEntryBytes;
    uint64_t others = 0;
    std::size_t before = size();
    for (uint32_t i = 0; i < count; ++i) {
      uint64_t entry = table + i * kEntryBytes;
      Arena arena{};
      if (read(entry, i, arena)) {
        if (!push(arena)) return;
      } else {
        others += is_in_use(entry);
      }
    }
    if (size() > before) unknown_entries_ += others;
  }

  // Returns whether blocks were taken from the arena, if there is one.
  static bool is_in_use(uint64_t entry) {
    return word(entry) != 0 &&
           load<uint32_t>(entry + kFreeCount) != load<uint32_t>(entry + kPoolCount);
  }

  bool read(uint64_t entry, uint32_t index, Arena& arena) const {
    uint64_t start = word(entry);
    if (start == 0 || start % kPage != 0) return false;
    for (uint64_t pool_bytes : kPoolSizes) {
      uint64_t end = start + kPools * pool_bytes, first = align_up(start, pool_bytes);
      uint64_t pools = (end - first) / pool_bytes;
      arena = {entry, pool_bytes, first, word(entry + kNextPool), first + pools * pool_bytes,
               index, 0};
      if (load<uint32_t>(entry + kPoolCount) != pools || !space_.is_anonymous(start, end)) continue;
      if (arena.untaken <= first || arena.untaken > arena.end) continue;
      uint64_t block_bytes;
      if (arena.untaken % pool_bytes == 0 && arena.is_pool(first, block_bytes)) return true;
    }
    return false;
  }

  const Space& space_;
  const BlockMap& blocks_;
  uint64_t last_ = 0;
  uint64_t unknown_entries_ = 0;
};

}  // namespace reachscan::heaps::pymalloc
