// Where each thread has its cache of free blocks (tcache_t). It is a thread-local variable. In the
// program and its initial libraries it is at the same distance from the thread pointer in all
// threads; in a library that was loaded later, at the same offset in each thread's block for that
// library. It is recognised by pointers from one part of it to another, and to an arena in the
// allocator's own memory.
#pragma once

#include "heaps/images.hpp"
#include "heaps/jemalloc/metadata.hpp"
#include "libc/dynamic_tls.hpp"
#include "libc/static_tls.hpp"

namespace reachscan::heaps::jemalloc {

constexpr uint64_t kBinBytes = 24;
constexpr unsigned kMaxBins = 80;  // those after the last one in use are zero

// Bins are in class order; before 5.3 those of large blocks are separate.
struct Cache {
  uint64_t arena = 0;
  uint64_t small = 0, large = 0;
  unsigned small_count = 0;

  uint64_t bin(unsigned number) const {
    return number < small_count ? small + number * kBinBytes
                                : large + (number - small_count) * kBinBytes;
  }
};

// Since 5.3: a pointer to tcache_slow_t, followed by the bins. That structure starts with the links
// of two lists, a pointer to the bins, and one to the arena; near its end, a pointer leads back to
// the cache. The first three are set only if the allocator keeps statistics, unlike most of Rust.
struct Slow {
  static constexpr uint64_t kBinsField = 32, kArenaField = 40, kMost = 512;

  static bool leads_to(uint64_t slow, uint64_t cache, Range tls) {
    if (word(slow + kBinsField) != 0) return word(slow + kBinsField) == cache + 8;
    for (uint64_t at = slow + kArenaField + 8; at < slow + kMost && at + 8 <= tls.end; at += 8)
      if (word(at) == cache) return true;
    return false;
  }
};

inline Cache cache_from_53(uint64_t at, Range tls) {
  uint64_t slow = word(at);
  if (slow % 8 != 0 || !tls.contains(slow) || tls.end - slow < Slow::kArenaField + 8 ||
      !Slow::leads_to(slow, at, tls))
    return {};
  return {word(slow + Slow::kArenaField), at + 8, 0, kMaxBins};
}

// Before: pointers to the bins of small and of large blocks, and to the arena, are between these.
inline Cache cache_until_52(uint64_t at, Range tls, unsigned small_count) {
  uint64_t small = word(at);
  if (small % 8 != 0 || small < tls.start || small >= at || at + 24 > tls.end) return {};
  constexpr uint64_t kBetween = 128;
  uint64_t large = word(at + 8), bins = small_count * kBinBytes;
  // The links of all caches and, in 5.2, of all threads follow the small bins.
  bool follows = at - small == bins + 32 || at - small == bins + 56;
  if (!follows || large <= at || large - at > kBetween) return {};
  return {word(at + 16), small, large, small_count};
}

class CachePlace {
 public:
  CachePlace(const Space& space, const Instance& instance, Metadata& metadata)
      : space_(space), instance_(instance), metadata_(metadata) {}

  // Returns false if no running thread has a cache.
  bool find(const libc::Threads& threads) {
    for (std::size_t t = 0; t < threads.running_count; ++t)
      if (find_near(threads.running[t].thread_pointer, libc::kTypicalTls)) return true;
    for (std::size_t t = 0; t < threads.running_count && t < libc::kMaxThreadsForLargeTls; ++t)
      if (find_near(threads.running[t].thread_pointer, libc::kLargestTls)) return true;
    return find_in_blocks(threads);
  }

  // Returns one without an arena if the thread has no cache now.
  Cache of_thread(uint64_t thread_pointer) const {
    if (thread_pointer == 0) return {};
    Range tls;
    uint64_t at;
    if (number_ == 0) {
      tls = libc::readable_tls(space_, thread_pointer, place_ + libc::kTypicalTls);
      at = arch::tls_variable(thread_pointer, place_);
    } else {
      tls = variables_at(libc::TlsTable(space_, thread_pointer).block(number_));
      at = tls.start + place_;
    }
    if (at < tls.start || at + 24 > tls.end) return {};
    Cache cache = cache_at(at, tls);
    return is_cache(cache) ? cache : Cache{};
  }

 private:
  static constexpr uint64_t kWords = 1 << 24;

  Cache cache_at(uint64_t at, Range tls) const {
    if (!instance_.layout.split_caches) return cache_from_53(at, tls);
    return cache_until_52(at, tls, small_classes(instance_.tree, instance_.quantum));
  }

  bool is_cache(const Cache& cache) const {
    return cache.arena != 0 && metadata_.contains(cache.arena);
  }

  // Returns 0 if there is none.
  uint64_t cache_in(Range tls) const {
    for (uint64_t at = space_.skip_absent(tls.start); at + 24 <= tls.end; at += 8)
      if (is_cache(cache_at(at, tls))) return at;
    return 0;
  }

  bool find_near(uint64_t thread_pointer, uint64_t reach) {
    uint64_t at = cache_in(libc::readable_tls(space_, thread_pointer, reach));
    if (at != 0) place_ = arch::tls_distance(thread_pointer, at);
    return at != 0;
  }

  // The number of the library is not known, so what other libraries have is searched as well.
  bool find_in_blocks(const libc::Threads& threads) {
    bytes_ = thread_local_bytes(space_, instance_.file);
    Budget words(kWords);
    for (std::size_t t = 0; t < threads.running_count; ++t) {
      libc::TlsTable table(space_, threads.running[t].thread_pointer);
      for (uint64_t number = 1; number <= table.count(); ++number) {
        if (!words.spend(1 + bytes_ / 8)) return false;
        uint64_t at = cache_in(variables_at(table.block(number)));
        if (at != 0) return settle(threads, at);
      }
    }
    return false;
  }

  // The search may have left a block that is smaller than the library's, so the one with the cache
  // is that which starts closest before it.
  bool settle(const libc::Threads& threads, uint64_t at) {
    place_ = at;
    for (std::size_t t = 0; t < threads.running_count; ++t) {
      libc::TlsTable table(space_, threads.running[t].thread_pointer);
      for (uint64_t number = 1; number <= table.count(); ++number) {
        uint64_t block = table.block(number);
        if (block > at || at - block >= place_) continue;
        place_ = at - block;
        number_ = number;
      }
    }
    return true;
  }

  // Returns the library's variables, if these are at `block`; an empty range if that is no block.
  Range variables_at(uint64_t block) const {
    if (block == 0 || block % 8 != 0 || bytes_ == 0 || !space_.readable(block, bytes_))
      return {0, 0};
    return {block, block + bytes_};
  }

  const Space& space_;
  const Instance& instance_;
  Metadata& metadata_;
  uint64_t bytes_ = 0;   // of the library's variables
  uint64_t number_ = 0;  // of the library, 0 if it is an initial one
  uint64_t place_ = 0;   // the distance from the thread pointer, or the offset in the block
};

}  // namespace reachscan::heaps::jemalloc
