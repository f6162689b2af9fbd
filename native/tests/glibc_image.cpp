// Lays out chunks, arenas, caches and bins as each release of glibc does.
#include "glibc_image.hpp"

#include "check.hpp"

namespace reachscan::tests {

using namespace heaps::glibc;

constexpr CacheShape kNoCache = {};

const std::vector<Release>& releases() {
  static const std::vector<Release> all{
      {"2.17", kUntil226, kNoCache, Links::kPlain, 0x20, kParamsUntil223, 0, false},
      {"2.23", kUntil226, kNoCache, Links::kPlain, 0x20, kParamsUntil223, 0},
      {"2.26", kUntil226, kCacheFrom226, Links::kPlain, 0x20, kParamsUntil234, 0},
      {"2.27", kFrom227, kCacheFrom226, Links::kPlain, 0x20, kParamsUntil234, 0},
      {"2.30", kFrom227, kCacheFrom230, Links::kPlain, 0x20, kParamsUntil234, 0},
      {"2.32", kFrom227, kCacheFrom230, Links::kMangled, 0x20, kParamsUntil234, 0},
      {"2.35", kFrom227, kCacheFrom230, Links::kMangled, 0x30, kParamsFrom235, 0},
      {"2.42", kFrom227, kCacheFrom242, Links::kMangled, 0x30, kParamsFrom235, 0},
      {"2.43", kFrom243, kCacheFrom242, Links::kMangled, 0x30, kParamsFrom235, 16}};
  return all;
}

const Release& release_named(const char* name) {
  for (const Release& release : releases())
    if (release.name == std::string(name)) return release;
  fail(__FILE__, __LINE__, std::string("no release ") + name);
}

void Chunks::header(uint64_t size) {
  // The word before the size belongs to the previous chunk while that one is allocated.
  if (free_before_ != 0) memory_.put(at_, free_before_);
  memory_.put(at_ + 8, size | flags_ | (free_before_ == 0 ? kPrevInUse : 0));
}

uint64_t Chunks::used(uint64_t size) {
  header(size);
  free_before_ = 0;
  uint64_t user = at_ + kHeader;
  at_ += size;
  return user;
}

uint64_t Chunks::live(uint64_t size) {
  uint64_t user = used(size);
  blocks[user] = size - 8;
  return user;
}

uint64_t Chunks::free(uint64_t size) {
  CHECK_EQ(free_before_, uint64_t{0});
  memory_.put(at_ + 8, size | kPrevInUse);
  free_before_ = size;
  uint64_t user = at_ + kHeader;
  at_ += size;
  return user;
}

uint64_t Chunks::top(uint64_t end) {
  header(end - at_);
  uint64_t chunk = at_;
  at_ = end;
  return chunk;
}

// Follows the arithmetic of sysmalloc: two headers are made from the end of the old top. The rest
// is freed, or remains as a chunk without a user if it is too small.
void Chunks::end_heap(uint64_t top_size) {
  uint64_t start = at_, rest = (top_size - kMinChunk) & ~15ull;
  header(top_size);
  memory_.put(start + rest + kHeader + 8, 0 | kPrevInUse);
  if (rest >= kMinChunk) {
    memory_.put(start + rest + 8, kHeader | kPrevInUse);
    memory_.put(start + rest + kHeader, kHeader);
    if (free_before_ != 0) fail(__FILE__, __LINE__, "a free chunk would have joined the top");
    free(rest);
    memory_.put(start + rest, rest);
    memory_.put(start + rest + 8, kHeader);
  } else {
    memory_.put(start + 8, (rest + kHeader) | kPrevInUse);
    memory_.put(start + rest + kHeader, rest + kHeader);
  }
  at_ = start + top_size;
  free_before_ = 0;
}

void Chunks::end_break(uint64_t top_size) {
  uint64_t start = at_, rest = (top_size - 2 * kHeader) & ~15ull;
  CHECK_EQ(free_before_, uint64_t{0});
  memory_.put(start + 8, rest | kPrevInUse);
  memory_.put(start + rest + 8, kHeader | kPrevInUse);
  memory_.put(start + rest + kHeader + 8, kHeader | kPrevInUse);
  if (rest >= kMinChunk) {
    memory_.put(start + rest, rest);
    memory_.put(start + rest + 8, kHeader);
  }
  at_ = start + top_size;
}

void Glibc::arena(uint64_t at, uint64_t top, uint64_t next, uint64_t system_mem, uint32_t flags) {
  const ArenaLayout& layout = release_.arena;
  memory_.store<uint32_t>(at + kFlagsOffset, flags);
  for (unsigned i = 0; i < kBinPairs; ++i) {
    uint64_t pair = at + layout.bins + 16ull * i;
    memory_.put(pair, pair - kHeader);
    memory_.put(pair + 8, pair - kHeader);
  }
  memory_.put(at + layout.top, top);
  memory_.put(at + layout.next, next);
  uint32_t after = release_.counts_threads ? kSystemMemFrom223 : kSystemMemUntil222;
  if (release_.counts_threads) memory_.put(at + layout.next + kThreadsAfterNext, 1);
  memory_.put(at + layout.next + after, system_mem);
  memory_.put(at + layout.next + after + 8, system_mem);  // max_system_mem
}

void Glibc::put_in_bin(uint64_t arena, unsigned bin, uint64_t user) {
  uint64_t pair = arena + release_.arena.bins + 16ull * bin, chunk = user - kHeader;
  memory_.put(pair, chunk);
  memory_.put(pair + 8, chunk);
  memory_.put(user, pair - kHeader);
  memory_.put(user + 8, pair - kHeader);
}

void Glibc::link(uint64_t at, uint64_t target) {
  memory_.put(at, release_.links == Links::kMangled ? target ^ (at >> 12) : target);
}

void Glibc::put_in_fastbin(uint64_t arena, const std::vector<uint64_t>& users, uint64_t last) {
  if (release_.arena.fastbins == 0 || users.empty()) return;
  uint64_t bin = (chunk_size(users[0] - kHeader) - kMinChunk) / 16;
  memory_.put(arena + release_.arena.fastbins + 8 * bin, users[0] - kHeader);
  for (std::size_t i = 0; i < users.size(); ++i)
    link(users[i], i + 1 < users.size() ? users[i + 1] - kHeader : last);
}

void Glibc::empty_fastbins(uint64_t arena) {
  for (unsigned bin = 0; release_.arena.fastbins != 0 && bin < kFastbins; ++bin)
    memory_.put(arena + release_.arena.fastbins + 8ull * bin, 0);
}

void Glibc::params(uint64_t sbrk_base_at, uint64_t sbrk_base, int32_t mapped,
                   uint64_t mapped_bytes) {
  uint64_t ints = sbrk_base_at - release_.params.ints;
  memory_.store<int32_t>(ints, mapped);
  memory_.store<int32_t>(ints + 4, 65536);
  memory_.store<int32_t>(ints + 8, mapped);
  memory_.put(sbrk_base_at - release_.params.mapped, mapped_bytes);
  memory_.put(sbrk_base_at - release_.params.mapped + 8, mapped_bytes);
  memory_.put(sbrk_base_at, sbrk_base);
}

void Glibc::heap_info(uint64_t at, uint64_t arena, uint64_t previous, uint64_t size) {
  memory_.put(at, arena);
  memory_.put(at + 8, previous);
  memory_.put(at + 16, size);
  memory_.put(at + 24, size);
}

void Glibc::cache(uint64_t cache) {
  const CacheShape& shape = release_.cache;
  for (unsigned bin = 0; shape.counts_free && bin < shape.bins; ++bin)
    memory_.store<uint16_t>(cache + 2ull * bin, 16);
}

void Glibc::put_in_cache(uint64_t cache, unsigned bin, const std::vector<uint64_t>& users,
                         uint64_t last) {
  const CacheShape& shape = release_.cache;
  auto count = static_cast<uint8_t>(users.size());
  if (shape.counter_size == 1) {
    memory_.store<uint8_t>(cache + bin, count);
  } else {
    auto counter = static_cast<uint16_t>(shape.counts_free ? 16 - count : count);
    memory_.store<uint16_t>(cache + 2ull * bin, counter);
  }
  memory_.put(cache + shape.entries + 8ull * bin, users[0]);
  for (std::size_t i = 0; i < users.size(); ++i) {
    link(users[i], i + 1 < users.size() ? users[i + 1] : last);
    memory_.put(users[i] + 8, cache);
  }
}

uint64_t Glibc::mapped(uint64_t base, uint64_t pages, uint64_t offset) {
  uint64_t length = pages * kPage - release_.mapped_excess;
  memory_.put(base, 0);
  memory_.put(base + 8, length | kMapped);
  if (offset != 0) {
    memory_.put(base + offset, offset);
    memory_.put(base + offset + 8, (length - offset) | kMapped);
  }
  return base + offset + kHeader;
}

}  // namespace reachscan::tests
