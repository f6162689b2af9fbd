// The bitmaps of one range of address space: two bits per granule, see block_map.hpp.
#pragma once

#include "memory/list.hpp"
#include "memory/space.hpp"

namespace reachscan::heaps {

// The sweeper is built in two forms. In the common form, blocks start at multiples of 16 bytes and
// at least 32 bytes before whatever comes next, as in glibc. The fine form allows adjacent blocks
// of a single word; its bitmaps take more memory and more time.
#ifdef REACHSCAN_FINE
constexpr bool kFine = true;
#else
constexpr bool kFine = false;
#endif
constexpr uint64_t kGranule = kFine ? kWord : 16;
constexpr uint64_t kMinBlock = kFine ? kWord : 32;  // including what the allocator adds
constexpr uint64_t kEndOffset = kGranule - kWord;   // of a block's end from a multiple of kGranule
constexpr uint64_t kSpan = 64 * kGranule;           // bytes covered by one pair of words
constexpr uint64_t kPairsInLine = 4;                // of the cache
constexpr uint64_t kBucket = 1 << 16;               // unit of lookup and of queued scanning

inline unsigned bit_of(uint64_t address) { return address / kGranule % 64; }

// Other threads may change marks, and drop blocks (glibc/fastbins.hpp).
inline uint64_t relaxed(const uint64_t* word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }
inline void set_relaxed(uint64_t* word, uint64_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELAXED);
}
inline uint64_t edges_of(const uint64_t* pair) { return pair[0] | relaxed(pair + 1); }

struct Cluster {
  uint64_t start;  // both are multiples of kBucket
  uint64_t length;
  uint64_t first_bucket;  // number of buckets in the preceding clusters
  uint64_t* words;        // pairs of starts and marks
  uint64_t* blanks;       // for each span, a bit for each granule known to be blank (blanks.hpp)
  uint64_t* carries;      // for each bucket, the last start or boundary before it, 0 if none
  uint8_t* inhabited;     // for each bucket, whether it contains a region

  void allocate(MapMemory map) {
    // One extra pair at the end, where a boundary may be, and one before the first, in a cache line
    // of its own, so that the pairs of a bucket start on a cache line.
    uint64_t pairs = pair_count() + kPairsInLine;
    uint64_t greys = kFine ? pair_count() / 2 + 1 : 0;
    words = static_cast<uint64_t*>(map((pairs * 2 + greys) * sizeof(uint64_t))) + 2 * kPairsInLine;
    blanks = static_cast<uint64_t*>(map((pair_count() + 1) * sizeof(uint64_t)));
    carries = static_cast<uint64_t*>(map((length / kBucket + 1) * sizeof(uint64_t)));
    inhabited = static_cast<uint8_t*>(map(length / kBucket + 1));
  }

  bool covers(uint64_t address) const { return address - start < length; }

  uint64_t* pair(uint64_t address) const { return words + (address - start) / kSpan * 2; }

  // Fine form: a bit for each two granules in which a grey block starts. These words follow the
  // pairs.
  uint64_t* greys_at(uint64_t address) const {
    return words + 2 * pair_count() + (address - start) / (2 * kSpan);
  }

  uint64_t* blanks_at(uint64_t address) const { return blanks + (address - start) / kSpan; }

  uint64_t bucket_of(uint64_t address) const { return first_bucket + (address - start) / kBucket; }

  bool is_inhabited(uint64_t address) const { return inhabited[(address - start) / kBucket] != 0; }

  // Returns the last start or boundary at or before `value`, or 0.
  uint64_t last_edge(uint64_t value) const {
    uint64_t* at = pair(value);
    uint64_t edges = edges_of(at) & (~0ull >> (63 - bit_of(value)));
    uint64_t base = value & ~(kSpan - 1);
    uint64_t stop = value & ~(kBucket - 1);
    while (edges == 0) {
      if (base == stop) return carries[(value - start) / kBucket];
      base -= kSpan;
      at -= 2;
      edges = edges_of(at);
    }
    return base + (63 - static_cast<unsigned>(__builtin_clzll(edges))) * kGranule;
  }

  // The same, but not before `first` and without using carries.
  uint64_t last_edge(uint64_t value, uint64_t first) const {
    for (uint64_t base = value & ~(kSpan - 1); base + kSpan > first; base -= kSpan) {
      uint64_t edges = edges_of(pair(base));
      if (value - base < kSpan) edges &= ~0ull >> (63 - bit_of(value));
      if (edges == 0) continue;
      uint64_t edge = base + (63 - static_cast<unsigned>(__builtin_clzll(edges))) * kGranule;
      return edge >= first ? edge : 0;
    }
    return 0;
  }

  // Returns the first start or boundary at or after `address`. There must be one.
  uint64_t next_edge(uint64_t address) const {
    uint64_t* at = pair(address);
    uint64_t base = address & ~(kSpan - 1);
    uint64_t edges = edges_of(at) & (~0ull << bit_of(address));
    while (edges == 0) {
      at += 2;
      base += kSpan;
      edges = edges_of(at);
    }
    return base + static_cast<unsigned>(__builtin_ctzll(edges)) * kGranule;
  }

  // Returns the first start or boundary in [address, last], or 0.
  uint64_t next_edge(uint64_t address, uint64_t last) const {
    for (uint64_t base = address & ~(kSpan - 1); base <= last; base += kSpan) {
      uint64_t edges = edges_of(pair(base));
      if (base < address) edges &= ~0ull << bit_of(address);
      if (edges == 0) continue;
      uint64_t edge = base + static_cast<unsigned>(__builtin_ctzll(edges)) * kGranule;
      return edge <= last ? edge : 0;
    }
    return 0;
  }

  // Notes that the buckets of [from, to) contain a region. Returns how many did not before.
  uint64_t note_region(uint64_t from, uint64_t to) const {
    uint64_t newly = 0;
    for (uint64_t bucket = from & ~(kBucket - 1); bucket < to; bucket += kBucket) {
      newly += !is_inhabited(bucket);
      inhabited[(bucket - start) / kBucket] = 1;
    }
    note_carries(from, to);
    return newly;
  }

 private:
  uint64_t pair_count() const { return length / kSpan + 1; }

  void note_carries(uint64_t from, uint64_t to) const {
    uint64_t last = 0;
    for (uint64_t base = from & ~(kSpan - 1); base < to; base += kSpan) {
      if (base % kBucket == 0 && base > from) carries[(base - start) / kBucket] = last;
      uint64_t edges = edges_of(pair(base));
      if (edges != 0) last = base + (63 - static_cast<unsigned>(__builtin_clzll(edges))) * kGranule;
    }
  }
};

}  // namespace reachscan::heaps
