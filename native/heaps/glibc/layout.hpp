// Shapes of glibc's ptmalloc structures, 64-bit (malloc/malloc.c and malloc/arena.c of glibc 2.17
// to 2.43; offsets checked against running 2.31, 2.36, 2.41 and 2.43).
#pragma once

#include "heaps/heap.hpp"

namespace reachscan::heaps::glibc {

// struct malloc_state. The distance from its start to `next` tells the families apart.
struct ArenaLayout {
  uint32_t next;
  uint32_t bins;
  uint32_t top;
  uint32_t fastbins;  // 0: this family has none
  uint32_t size;
};

constexpr ArenaLayout kUntil226 = {0x868, 0x68, 0x58, 0x08, 0x890};
constexpr ArenaLayout kFrom227 = {0x870, 0x70, 0x60, 0x10, 0x898};
constexpr ArenaLayout kFrom243 = {0x818, 0x18, 0x08, 0x00, 0x840};

constexpr unsigned kBinPairs = 127;
constexpr unsigned kFastbins = 10;
constexpr uint32_t kFlagsOffset = 4;
constexpr uint32_t kNonContiguous = 2;
constexpr uint32_t kSystemMemAfterNext = 24;

// A chunk: prev_size, size with three flag bits, then the user's memory.
constexpr uint64_t kHeader = 16;
constexpr uint64_t kChunkAlignment = 16;
constexpr uint64_t kMinChunk = 32;
constexpr uint64_t kPrevInUse = 1;
constexpr uint64_t kMapped = 2;
constexpr uint64_t kFlagBits = 7;
constexpr uint64_t kFencepost = 16;

inline uint64_t raw_size(uint64_t chunk) { return word(chunk + 8); }
inline uint64_t chunk_size(uint64_t chunk) { return raw_size(chunk) & ~kFlagBits; }

// One copy of the library in the process (there is more than one after dlmopen).
struct Instance {
  uint64_t main_arena;
  ArenaLayout layout;
  uint32_t file;  // abi::Mapping::file of the module it is part of
  bool used;      // false: malloc has never been called
};

struct Arena {
  uint64_t address;
  uint32_t instance;
  uint32_t ordinal;  // 0 = main

  uint64_t top(const ArenaLayout& layout) const { return word(address + layout.top); }
  uint32_t mutex() const { return load<uint32_t>(address); }
};

}  // namespace reachscan::heaps::glibc
