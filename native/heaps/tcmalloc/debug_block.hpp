// The debug form of the allocator (libtcmalloc_debug) is the allocator as it is, with a layer above
// it: each block of the program is inside one of the allocator's (MallocBlock), freed ones wait
// there in a queue, and tables lead to all of them. So it must be told from the usual form.
#pragma once

#include "heaps/heap.hpp"

namespace reachscan::heaps::tcmalloc {

// How many blocks are looked at. In the debug form all but a few are of the program.
constexpr unsigned kDebugSample = 1024;
constexpr uint64_t kLeastDebugBlock = 48;

// Returns whether a block holds one of the program: a size, how far an aligned block is from its
// start, a number that no other word has, and which function allocated it; behind the contents, the
// size and the number again.
inline bool is_debug_block(const Space& space, uint64_t block, uint64_t bytes) {
  constexpr uint64_t kMagic = 0xdeadbeef, kMagicField = 16, kKindField = 24, kHeader = 32;
  constexpr uint32_t kMalloc = 0xefcdab90, kNew = 0xfebadc81, kNewArray = 0xbceadf72;
  if (bytes < kLeastDebugBlock || !space.readable(block, bytes)) return false;
  uint64_t size = word(block), behind = block + kHeader + size;
  auto kind = load<uint32_t>(block + kKindField);
  return size <= bytes - kLeastDebugBlock && word(block + kMagicField) == kMagic &&
         (kind == kMalloc || kind == kNew || kind == kNewArray) && word(behind) == size &&
         word(behind + 8) == kMagic;
}

}  // namespace reachscan::heaps::tcmalloc
