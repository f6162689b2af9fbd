// What the free lists of an allocator leave behind in blocks that are in use again.
//
// Lists of whole blocks leave pointers to blocks, like any other; a walker cannot tell them apart,
// and need not: the program may follow them as well. Lists of chunks leave pointers to chunks,
// whose header is in front of the block (boundary tags). They look like pointers into the block
// before, which they do not mean. Regions that have such chunks say so by their tail.
#pragma once

#include "memory/space.hpp"

namespace reachscan::heaps {

// A chunk begins so many bytes before its block. The first word is the last one of the block before
// if that is in use; the second belongs to the allocator.
constexpr uint64_t kChunkHeader = 16;
constexpr uint64_t kChunkTail = 8;

// Only so many bytes at the head of a block can be left behind: pointers to the neighbours in the
// list and in the list of sizes.
constexpr uint64_t kHeadBytes = 32;

inline Range head_of(Range block) {
  bool all = block.end - block.start <= kHeadBytes;
  return {block.start, all ? block.end : block.start + kHeadBytes};
}

// The low bits of a word do not matter to which block it points into. Words from elsewhere than the
// head of a block have them set, so that they cannot be taken for what a free list left behind.
constexpr uint64_t kElsewhere = 7;

// In place of a block: what a free list may have left behind.
constexpr uint64_t kLeftover = 1;

}  // namespace reachscan::heaps
