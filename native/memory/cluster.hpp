// The bitmaps of one stretch of address space: two bits for each granule, see block_map.hpp.
#pragma once

#include "memory/list.hpp"
#include "memory/space.hpp"

namespace reachscan::heaps {

// Chunks with a header of 8 bytes, one behind the other (boundary tags). What is noted about a
// block has room behind its start.
struct Coarse {
  static constexpr uint64_t kGranule = 16;
  static constexpr uint64_t kSpan = 64 * kGranule;  // bytes covered by one pair of words
  static constexpr uint64_t kLeastBlock = 2 * kGranule;
};

// Slots without headers, of any size from one word on.
struct Fine {
  static constexpr uint64_t kGranule = 8;
  static constexpr uint64_t kSpan = 64 * kGranule;
  static constexpr uint64_t kLeastBlock = kGranule;
};

template <typename Work>
[[gnu::noinline]] auto out_of_line(Work work) {
  return work(Fine{});
}

// Calls work(Coarse{}) or work(Fine{}). What is done if fine is kept out of the way of the rest,
// which then is as fast as if there were no choice.
template <typename Work>
[[gnu::always_inline]] inline auto by_grain(bool is_fine, Work work) {
  if (is_fine) [[unlikely]]
    return out_of_line(work);
  return work(Coarse{});
}

// Whether the granule behind a block's start is always the block's.
template <typename Grain>
constexpr bool kHasRoomBehindStart = Grain::kLeastBlock > Grain::kGranule;

// malloc aligns all blocks so, but for the smallest of some allocators.
constexpr uint64_t kGranule = Coarse::kGranule;
constexpr uint64_t kSpan = Coarse::kSpan;
constexpr uint64_t kPairsInLine = 4;   // of the cache
constexpr uint64_t kBucket = 1 << 16;  // bytes that are looked up, and waited for, together

template <typename Grain>
unsigned bit_of(uint64_t address) {
  return address / Grain::kGranule % 64;
}

// The granule that the lowest, or the highest, set bit of a word stands for.
template <typename Grain>
uint64_t first_of(uint64_t base, uint64_t bits) {
  return base + static_cast<unsigned>(__builtin_ctzll(bits)) * Grain::kGranule;
}
template <typename Grain>
uint64_t last_of(uint64_t base, uint64_t bits) {
  return base + (63 - static_cast<unsigned>(__builtin_clzll(bits))) * Grain::kGranule;
}

// Marks change under the eyes of other threads; starts and boundaries stay.
inline uint64_t relaxed(const uint64_t* word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }
inline uint64_t edges_of(const uint64_t* pair) { return pair[0] | relaxed(pair + 1); }

// Sets both marks, or neither if the first is set already. Returns whether it was not.
template <bool kShared>
bool set_marks(uint64_t* marks, uint64_t first, uint64_t second) {
  uint64_t seen = relaxed(marks);
  do {
    if ((seen & first) != 0) return false;
    if (!kShared) {
      *marks = seen | first | second;
      return true;
    }
  } while (!__atomic_compare_exchange_n(marks, &seen, seen | first | second, false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
  return true;
}

// Clears some bits and returns those that were set.
template <bool kShared>
uint64_t take_bits(uint64_t* word, uint64_t bits) {
  if (kShared) return bits & __atomic_fetch_and(word, ~bits, __ATOMIC_SEQ_CST);
  bits &= *word;
  *word &= ~bits;
  return bits;
}

// Adds blocks and boundaries to a pair.
inline void add_edges(uint64_t* pair, uint64_t starts, uint64_t boundaries) {
  pair[0] = (pair[0] & ~boundaries) | starts;
  pair[1] = (pair[1] & ~starts) | boundaries;
}

// The lower 32 bits, with a zero behind each: coarse granules as fine ones.
inline uint64_t spread(uint64_t bits) {
  bits &= 0xffffffff;
  bits = (bits | bits << 16) & 0x0000ffff0000ffff;
  bits = (bits | bits << 8) & 0x00ff00ff00ff00ff;
  bits = (bits | bits << 4) & 0x0f0f0f0f0f0f0f0f;
  bits = (bits | bits << 2) & 0x3333333333333333;
  return (bits | bits << 1) & 0x5555555555555555;
}

struct Cluster {
  uint64_t start;  // both are multiples of kBucket
  uint64_t length;
  uint64_t first_bucket;  // how many buckets there are in the clusters before
  uint64_t* words;        // pairs of starts and marks
  uint64_t* greys;        // a word for each pair: what is put off; unused if coarse
  uint64_t* carries;      // for each bucket, the last start or boundary before it, 0 if none
  uint8_t* inhabited;     // for each bucket, whether there is a region in it
  uint8_t* queued;        // for each bucket, whether it waits to be gone through

  template <typename Grain>
  void allocate(MapMemory map) {
    // One pair more at the end, where a boundary may stand; and one before the first, in a cache
    // line of its own, so that those of a bucket begin with a line.
    uint64_t pairs = length / Grain::kSpan + 1 + kPairsInLine;
    words = static_cast<uint64_t*>(map(pairs * 2 * sizeof(uint64_t))) + 2 * kPairsInLine;
    if constexpr (!kHasRoomBehindStart<Grain>)
      greys = static_cast<uint64_t*>(map(pairs * sizeof(uint64_t)));
    carries = static_cast<uint64_t*>(map((length / kBucket + 1) * sizeof(uint64_t)));
    inhabited = static_cast<uint8_t*>(map(length / kBucket + 1));
    queued = static_cast<uint8_t*>(map(length / kBucket + 1));
  }

  bool covers(uint64_t address) const { return address - start < length; }

  template <typename Grain>
  uint64_t* pair(uint64_t address) const {
    return words + (address - start) / Grain::kSpan * 2;
  }

  template <typename Grain>
  uint64_t* greys_at(uint64_t address) const {
    return greys + (address - start) / Grain::kSpan;
  }

  template <typename Grain>
  bool is_start(uint64_t granule) const {
    return (pair<Grain>(granule)[0] >> bit_of<Grain>(granule) & 1) != 0;
  }

  // Marks the block at `start`, and puts off its scan. Returns where that is noted, 0 if the block
  // was marked before.
  template <typename Grain, bool kShared>
  [[gnu::always_inline]] uint64_t grey(uint64_t start) const {
    uint64_t* at = pair<Grain>(start);
    unsigned bit = bit_of<Grain>(start);
    if constexpr (kHasRoomBehindStart<Grain>) {
      if (!set_marks<kShared>(at + 1, 1ull << bit, 1ull << bit << 1)) return 0;
      if (bit == 63) set_marks<kShared>(at + 3, 0, 1);
      return start + Grain::kGranule;
    } else {
      if (!set_marks<kShared>(at + 1, 1ull << bit, 0)) return 0;
      set_marks<kShared>(greys_at<Grain>(start), 0, 1ull << bit);
      return start;
    }
  }

  // Calls visit(pair, start) for the blocks whose scan was put off, as far as that is noted in the
  // span from `base` on. It is put off no more.
  template <typename Grain, bool kShared, typename Visit>
  [[gnu::always_inline]] void take_grey(uint64_t base, Visit visit) const {
    uint64_t* at = pair<Grain>(base);
    if constexpr (kHasRoomBehindStart<Grain>) {
      uint64_t behind_starts = at[0] << 1 | at[-2] >> 63;
      uint64_t noted = relaxed(at + 1) & ~at[0] & behind_starts;
      if (noted == 0) return;
      noted = take_bits<kShared>(at + 1, noted);
      if ((noted & 1) != 0) visit(at - 2, base - Grain::kGranule);
      for (noted &= ~1ull; noted != 0; noted &= noted - 1)
        visit(at, first_of<Grain>(base, noted) - Grain::kGranule);
    } else {
      uint64_t* greys_here = greys_at<Grain>(base);
      if (relaxed(greys_here) == 0) return;
      for (uint64_t noted = take_bits<kShared>(greys_here, ~0ull); noted != 0; noted &= noted - 1)
        visit(at, first_of<Grain>(base, noted));
    }
  }

  uint64_t bucket_of(uint64_t address) const { return first_bucket + (address - start) / kBucket; }

  bool is_inhabited(uint64_t address) const { return inhabited[(address - start) / kBucket] != 0; }

  // Notes that a bucket is to be gone through. False: that is noted already.
  bool queue_bucket(uint64_t address) const {
    return __atomic_exchange_n(queued_at(address), 1, __ATOMIC_SEQ_CST) == 0;
  }

  // To be called before what is put off there is taken, so that what comes later is noted anew.
  void unqueue_bucket(uint64_t address) const {
    __atomic_store_n(queued_at(address), 0, __ATOMIC_SEQ_CST);
  }

  // The last start or boundary at or before `value`, 0 if there is none.
  template <typename Grain>
  uint64_t last_edge(uint64_t value) const {
    uint64_t* at = pair<Grain>(value);
    uint64_t edges = edges_of(at) & (~0ull >> (63 - bit_of<Grain>(value)));
    uint64_t base = value & ~(Grain::kSpan - 1);
    uint64_t stop = value & ~(kBucket - 1);
    while (edges == 0) {
      if (base == stop) return carries[(value - start) / kBucket];
      base -= Grain::kSpan;
      at -= 2;
      edges = edges_of(at);
    }
    return last_of<Grain>(base, edges);
  }

  // The first start or boundary at or behind `address`, which must be before one.
  template <typename Grain>
  uint64_t next_edge(uint64_t address) const {
    uint64_t* at = pair<Grain>(address);
    uint64_t base = address & ~(Grain::kSpan - 1);
    uint64_t edges = edges_of(at) & (~0ull << bit_of<Grain>(address));
    while (edges == 0) {
      at += 2;
      base += Grain::kSpan;
      edges = edges_of(at);
    }
    return first_of<Grain>(base, edges);
  }

  // The first start or boundary in [address, last], 0 if there is none.
  template <typename Grain>
  uint64_t next_edge(uint64_t address, uint64_t last) const {
    for (uint64_t base = address & ~(Grain::kSpan - 1); base <= last; base += Grain::kSpan) {
      uint64_t edges = edges_of(pair<Grain>(base));
      if (base < address) edges &= ~0ull << bit_of<Grain>(address);
      if (edges == 0) continue;
      uint64_t edge = first_of<Grain>(base, edges);
      return edge <= last ? edge : 0;
    }
    return 0;
  }

  uint8_t* queued_at(uint64_t address) const { return queued + (address - start) / kBucket; }

  // Notes that a region is in the buckets of [from, to). Returns how many of them had none.
  template <typename Grain>
  uint64_t note_region(uint64_t from, uint64_t to) const {
    uint64_t newly = 0;
    for (uint64_t bucket = from & ~(kBucket - 1); bucket < to; bucket += kBucket) {
      newly += !is_inhabited(bucket);
      inhabited[(bucket - start) / kBucket] = 1;
    }
    note_carries<Grain>(from, to);
    return newly;
  }

 private:
  template <typename Grain>
  void note_carries(uint64_t from, uint64_t to) const {
    uint64_t last = 0;
    for (uint64_t base = from & ~(Grain::kSpan - 1); base < to; base += Grain::kSpan) {
      if (base % kBucket == 0 && base > from) carries[(base - start) / kBucket] = last;
      uint64_t edges = edges_of(pair<Grain>(base));
      if (edges != 0) last = last_of<Grain>(base, edges);
    }
  }
};

}  // namespace reachscan::heaps
