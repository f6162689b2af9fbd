// Shapes of glibc's ptmalloc structures (malloc/malloc.c and malloc/arena.c of glibc 2.17 to 2.43;
// offsets checked against running 2.23, 2.27, 2.31, 2.36, 2.41 and 2.43, with words of four bytes
// against 2.36 of i386 and armhf).
#pragma once

#include "heaps/heap.hpp"
#include "memory/chunk.hpp"

namespace reachscan::heaps::glibc {

// struct malloc_state. The offset of `next` distinguishes the families.
struct ArenaLayout {
  uint32_t next;
  uint32_t bins;
  uint32_t top;
  uint32_t fastbins;  // 0: this family has none
  uint32_t size;
};

constexpr unsigned kBinPairs = 127;
constexpr uint64_t kFastbinStep = 2 * kWord;  // between sizes; not all of them exist
// The largest blocks there have 20 words, and chunks a word more.
constexpr unsigned kFastbins = align_up(21 * kWord, kChunkAlignment) / kFastbinStep - 1;

// The bins follow the top chunk and the last remainder; a bit for each bin follows them.
constexpr ArenaLayout with_top_at(uint32_t top, uint32_t fastbins) {
  uint32_t bins = top + 2 * kWord, next = bins + kBinPairs * 2 * kWord + 16;
  return {next, bins, top, fastbins, next + 5 * kWord};
}

// Two ints come first, and between 2.27 and 2.42 a third one.
constexpr ArenaLayout kUntil226 = with_top_at(8 + kFastbins * kWord, 8);
constexpr ArenaLayout kFrom227 = with_top_at(8 + kWord + kFastbins * kWord, 8 + kWord);
constexpr ArenaLayout kFrom243 = with_top_at(8, 0);
static_assert(kWord != 8 || (kFrom227.next == 0x870 && kUntil226.next == 0x868));
static_assert(kWord != 8 || kFastbins == 10);
static_assert(kWord != 8 || (kFrom243.next == 0x818 && kFrom227.size == 0x898));

constexpr uint32_t kFlagsOffset = 4;
constexpr uint32_t kNonContiguous = 2;
// `next` is followed by the link of a list of free arenas, the number of threads, and the amount of
// memory that the arena has got.
constexpr uint32_t kThreadsAfterNext = 2 * kWord;
constexpr uint32_t kSystemMemUntil222 = kThreadsAfterNext;  // no thread count yet
constexpr uint32_t kSystemMemFrom223 = 3 * kWord;

constexpr uint64_t kFencepost = kHeader;

// One copy of the library in the process (there are several after dlmopen).
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
