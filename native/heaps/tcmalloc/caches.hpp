// Blocks that spans count as handed out, though the program does not have them: those in thread
// caches, and in the chains that threads pass to each other through the central lists. All caches
// are linked to each other, and to a variable of the allocator. An exiting thread empties and
// unlinks its cache; one left behind by a fork could not.
#pragma once

#include "heaps/tcmalloc/metadata.hpp"

namespace reachscan::heaps::tcmalloc {

class Caches {
 public:
  Caches(const Space& space, const Instance& instance, Metadata& metadata, BlockMap& blocks,
         Totals& totals)
      : space_(space), instance_(instance), metadata_(metadata), blocks_(blocks), totals_(totals) {}

  Verdict drop_all() {
    for (unsigned number = 1; number < instance_.classes.count && verdict_.fine(); ++number)
      drop_chains(instance_.central_of(number), number);
    if (verdict_.fine()) drop_caches();
    return verdict_;
  }

 private:
  static constexpr uint64_t kThreadLimit = 1 << 22;

  void drop_chains(const Central& central, unsigned number) {
    uint32_t count = central.chains();
    if (count > Central::kMaxChains)
      return stop("a central list of free blocks has more chains than it can have", central.at);
    for (uint32_t i = 0; i < count && verdict_.fine(); ++i) {
      uint64_t last = drop_until(central.chain(i), central.tail(i), number);
      if (last != central.tail(i)) stop("a chain of free blocks is not consistent", central.at);
    }
  }

  // Drops the blocks from `block` to `tail`. Returns the last one that is consistent.
  uint64_t drop_until(uint64_t block, uint64_t tail, unsigned number) {
    uint64_t last = 0;
    for (; drop(block, number); block = word(block)) {
      last = block;
      if (block == tail) break;
    }
    return last;
  }

  // Caches of exited threads are empty, so meeting one is harmless. A single cache has no
  // neighbour.
  void drop_caches() {
    Range data = instance_.data;
    uint64_t cache = 0, lone = 0;
    for (uint64_t at = align_up(data.start, 8); at + 8 <= data.end; at += 8) {
      if (at % kPage == 0) at = space_.skip_absent(at);
      if (at + 8 > data.end) break;
      if (word(at) == cache || !is_cache(word(at))) continue;
      cache = word(at);
      if (uint64_t links = links_of(cache)) return drop_linked(cache, links);
      if (!is_empty(cache)) lone = cache;
    }
    if (lone != 0) drop_cache(lone);
  }

  // Each list of a cache contains the size of its blocks.
  bool is_cache(uint64_t at) const {
    if (at % 64 != 0 || !space_.readable(at, kCacheBytes)) return false;
    for (unsigned number = 1; number < instance_.classes.count; ++number) {
      uint64_t size_at = at + number * kListBytes + kListSize;
      if (load<uint32_t>(size_at) != instance_.classes.size(number)) return false;
    }
    return true;
  }

  bool is_empty(uint64_t cache) const {
    for (unsigned number = 1; number < instance_.classes.count; ++number)
      if (load<uint32_t>(cache + number * kListBytes + kListLength) != 0) return false;
    return true;
  }

  // Returns the offset of the links in a cache, 0 if it has no neighbour.
  uint64_t links_of(uint64_t cache) const {
    for (uint64_t links = kListsBytes; links + 16 <= kCacheBytes; links += 8) {
      uint64_t next = word(cache + links), previous = word(cache + links + 8);
      if (next != 0 && is_cache(next) && word(next + links + 8) == cache) return links;
      if (previous != 0 && is_cache(previous) && word(previous + links) == cache) return links;
    }
    return 0;
  }

  void drop_linked(uint64_t cache, uint64_t links) {
    Budget budget(kThreadLimit);
    while (uint64_t previous = word(cache + links + 8)) {
      if (!is_cache(previous) || word(previous + links) != cache || !budget.spend(1))
        return stop("the threads' caches of free blocks are not linked", cache);
      cache = previous;
    }
    while (verdict_.fine()) {
      drop_cache(cache);
      uint64_t next = word(cache + links);
      if (next == 0) return;
      if (!is_cache(next) || word(next + links + 8) != cache || !budget.spend(1))
        return stop("the threads' caches of free blocks are not linked", cache);
      cache = next;
    }
  }

  void drop_cache(uint64_t cache) {
    verdict_ = metadata_.claim(cache, kListsBytes);
    if (!verdict_.fine()) return;
    for (unsigned number = 1; number < instance_.classes.count; ++number) {
      uint64_t list = cache + number * kListBytes, block = word(list);
      for (auto left = load<uint32_t>(list + kListLength); left > 0; --left, block = word(block))
        if (!drop(block, number)) return stop("a thread's cache is not consistent", list);
      if (block != 0) return stop("a thread's cache has more blocks than it counts", list);
    }
  }

  // Returns false if it is not a block of this class in use.
  bool drop(uint64_t block, unsigned number) {
    uint32_t size = instance_.classes.size(number);
    if (!blocks_.is_live(block) || !blocks_.ends_at(block, block + size) ||
        !space_.readable(block, 8))
      return false;
    blocks_.drop_live(block);
    totals_.subtract(size);
    return true;
  }

  void stop(const char* reason, uint64_t address) { verdict_ = invalid(reason, address); }

  const Space& space_;
  const Instance& instance_;
  Metadata& metadata_;
  BlockMap& blocks_;
  Totals& totals_;
  Verdict verdict_;
};

}  // namespace reachscan::heaps::tcmalloc
