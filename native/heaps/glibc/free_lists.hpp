// Chunks that look allocated but are not: fastbins and the threads' caches (tcache).
//
// Both are lists of chunks whose in-use bit stays set. Since 2.32 (and in some older builds) a link
// is stored as pointer ^ (its own address >> 12) ("safe-linking"). The lists themselves show which
// encoding is used, because only the right one stays inside known blocks.
#pragma once

#include "heaps/glibc/layout.hpp"

namespace reachscan::heaps::glibc {

enum class Links { kPlain, kMangled };

inline uint64_t read_link(uint64_t stored, uint64_t link_address, Links links) {
  return links == Links::kMangled ? stored ^ (link_address >> 12) : stored;
}

inline uint64_t follow(uint64_t link_address, Links links) {
  return read_link(word(link_address), link_address, links);
}

constexpr std::size_t kBadList = ~std::size_t{0};

// Returns the length of a list of blocks (user addresses) that starts with `user`; kBadList if it
// leaves the known blocks, contains one whose chunk size `fits` rejects, or exceeds `limit` or the
// budget.
template <typename Fits>
std::size_t list_length(const BlockMap& blocks, uint64_t user, Links links, std::size_t limit,
                        Budget& budget, Fits fits) {
  std::size_t length = 0;
  for (; user != 0; user = follow(user, links)) {
    if (!blocks.is_live(user) || !fits(chunk_size(user - kHeader))) return kBadList;
    if (++length > limit || !budget.spend(1)) return kBadList;
  }
  return length;
}

inline bool is_mapped_chunk(uint64_t chunk) { return (raw_size(chunk) & kMapped) != 0; }

// A mapping holds no word of a next chunk. Since 2.43 its size does not count the header.
inline uint64_t usable_bytes(uint64_t user) {
  uint64_t chunk = user - kHeader, size = chunk_size(chunk);
  bool counts_all = is_mapped_chunk(chunk) && (chunk + size) % kPage == 0;
  return size - (counts_all ? kHeader : kWord);
}

inline void drop_block(BlockMap& blocks, Totals& totals, uint64_t user) {
  blocks.drop_live(user);
  totals.subtract(usable_bytes(user));
}

inline void drop_list(BlockMap& blocks, Totals& totals, uint64_t user, Links links) {
  // A list that visits a block twice was rejected before: dropping it ends the walk.
  while (user != 0 && blocks.is_live(user)) {
    uint64_t next = follow(user, links);
    drop_block(blocks, totals, user);
    user = next;
  }
}

// The shapes of tcache_perthread_struct: counters, followed by the heads of the lists.
struct CacheShape {
  uint32_t counter_size;  // bytes
  uint32_t bins;
  uint32_t small_bins;  // one chunk size each; the others hold ranges of large chunks
  uint32_t entries;     // offset of the heads
  uint32_t chunk;       // minimal size of the chunk that holds the struct
  bool counts_free;     // the counters count free slots, not cached chunks
};

// The size of the chunk for this many counters and heads.
constexpr uint32_t cache_chunk(uint32_t counters, uint32_t bins) {
  constexpr uint32_t kAlignment = kChunkAlignment;
  return (counters + bins * kWord + kWord + kAlignment - 1) / kAlignment * kAlignment;
}

constexpr CacheShape kCacheFrom226 = {1, 64, 64, 64, cache_chunk(64, 64), false};
constexpr CacheShape kCacheFrom230 = {2, 64, 64, 128, cache_chunk(128, 64), false};
constexpr CacheShape kCacheFrom242 = {2, 76, 64, 152, cache_chunk(152, 76), true};
constexpr std::size_t kMaxCached = 0xffff;  // counters have 16 bits
constexpr uint64_t kCacheSlack = 0x30;      // the chunk may be the remainder of a larger one

inline uint64_t cache_counter(uint64_t cache, const CacheShape& shape, unsigned bin) {
  return shape.counter_size == 1 ? load<uint8_t>(cache + bin) : load<uint16_t>(cache + 2 * bin);
}

inline bool fits_cache_bin(const CacheShape& shape, unsigned bin, uint64_t size) {
  return bin >= shape.small_bins ? size > kMinChunk + kChunkAlignment * (shape.small_bins - 1)
                                 : size == kMinChunk + kChunkAlignment * bin;
}

struct CacheCheck {
  bool valid = false;
  std::size_t cached = 0;  // chunks in all lists
};

// Whether `cache` is a consistent cache of this shape: every list contains only blocks of its bin's
// size, and its length agrees with its counter.
inline CacheCheck check_cache(const BlockMap& blocks, uint64_t cache, const CacheShape& shape,
                              Links links, Budget& budget) {
  CacheCheck check;
  uint64_t slots = 0;
  for (unsigned bin = 0; bin < shape.bins; ++bin) {
    uint64_t head = word(cache + shape.entries + uint64_t{kWord} * bin);
    uint64_t counter = cache_counter(cache, shape, bin);
    std::size_t limit = shape.counts_free ? kMaxCached : counter;
    std::size_t length = list_length(blocks, head, links, limit, budget, [&](uint64_t size) {
      return fits_cache_bin(shape, bin, size);
    });
    if (length == kBadList) return check;
    if (!shape.counts_free && length != counter) return check;
    if (shape.counts_free && bin < shape.small_bins) {
      if (bin > 0 && length + counter != slots) return check;
      slots = length + counter;
    }
    check.cached += length;
  }
  check.valid = true;
  return check;
}

inline bool has_cache_size(const BlockMap& blocks, uint64_t user, const CacheShape& shape) {
  if (!blocks.is_live(user)) return false;
  uint64_t size = chunk_size(user - kHeader), most = shape.chunk + kCacheSlack;
  // It has a mapping of its own if the thread got no arena, or the program maps blocks of any size.
  if (is_mapped_chunk(user - kHeader)) most = align_up(uint64_t{shape.chunk} + kHeader, kPage);
  return size >= shape.chunk && size <= most;
}

}  // namespace reachscan::heaps::glibc
