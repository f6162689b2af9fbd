// The header of a chunk in glibc's heap (malloc/malloc.c):
//
//   size of the chunk before, if that is free | size, with flags in its lowest bits | usable memory
//
// Chunks follow each other without a gap, so the first word of a chunk is also the last usable one
// of the chunk before. Links of free lists lead to chunks.
#pragma once

#include "memory/space.hpp"

namespace reachscan::heaps::glibc {

constexpr uint64_t kHeader = 2 * kWord;
constexpr uint64_t kMinChunk = 4 * kWord;
constexpr uint64_t kChunkAlignment = arch::kLargestAlignment;  // of the usable memory
constexpr uint64_t kPrevInUse = 1;
constexpr uint64_t kMapped = 2;
constexpr uint64_t kFlagBits = 7;

constexpr bool is_chunk_aligned(uint64_t chunk) { return (chunk + kHeader) % kChunkAlignment == 0; }
// The first place at or after `address` where a chunk may start.
constexpr uint64_t first_chunk(uint64_t address) {
  return align_up(address + kHeader, kChunkAlignment) - kHeader;
}

inline uint64_t raw_size(uint64_t chunk) { return word(chunk + kWord); }
inline uint64_t chunk_size(uint64_t chunk) { return raw_size(chunk) & ~kFlagBits; }

}  // namespace reachscan::heaps::glibc
