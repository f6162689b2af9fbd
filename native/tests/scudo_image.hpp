// Writes what Scudo records about its blocks: descriptions of size classes, headers, the list of
// large blocks, the cache of mappings, and the pool of guarded blocks.
#pragma once

#include <map>

#include "heaps/scudo/guarded.hpp"
#include "heaps/scudo/layout.hpp"
#include "memory.hpp"

namespace reachscan::tests {

enum class Sum { kCrc, kBsd };

class Scudo {
 public:
  static constexpr uint32_t kFile = 9;
  static constexpr uint64_t kData = kWorld;
  static constexpr uint64_t kObject = kData + 0x240;
  static constexpr uint64_t kClassesAt = kObject + heaps::scudo::kCookieBefore;
  static constexpr uint64_t kPool = kObject + 0x5850;
  static constexpr uint64_t kRecords = kWorld + (16 << 20);
  static constexpr uint64_t kPoolPages = kWorld + (32 << 20);
  static constexpr uint64_t kLarge = kWorld + (64 << 20);
  static constexpr uint64_t kHeap = kWorld + (1ull << 36);
  static constexpr uint64_t kMapped = 256 << 10;  // of each class
  static constexpr uint32_t kCookie = 0x8badf00d;
  static constexpr uint64_t kGuardedSlots = 4;

  Scudo(const heaps::scudo::Layout& layout, Sum sum);

  // Each makes the next slot of a class a block and returns its address. `at_end` is for a block of
  // no bytes that is aligned so that it starts where the slot ends.
  uint64_t block(unsigned number, uint64_t bytes, uint64_t shift = 0);
  uint64_t freed(unsigned number, heaps::scudo::State state);
  uint64_t at_end(unsigned number);
  // Adds a note of blocks that are in quarantine. Returns its address.
  uint64_t quarantine(const std::vector<uint64_t>& blocks);
  uint64_t large(uint64_t bytes);
  uint64_t guarded(uint64_t slot, uint64_t bytes, bool freed);
  // Puts a mapping into the cache. Returns its address.
  uint64_t cached(uint64_t pages);
  void pool(uint16_t version);

  void head(uint64_t block, unsigned number, heaps::scudo::State state, uint64_t size,
            uint64_t shift);
  uint64_t list() const { return kClassesAt + heaps::scudo::kClassesBytes + layout_.list; }

  Memory memory;
  std::map<uint64_t, uint64_t> blocks;  // sizes

 private:
  uint64_t slot(unsigned number);
  void count(uint64_t at);

  heaps::scudo::Layout layout_;
  Sum sum_;
  uint64_t starts_[heaps::scudo::kClasses] = {};
  uint64_t next_large_ = kLarge;
  uint64_t last_large_ = 0;
};

}  // namespace reachscan::tests
