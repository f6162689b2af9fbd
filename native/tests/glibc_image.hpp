// Writes what glibc's malloc would leave in memory, release by release.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "heaps/glibc/free_lists.hpp"
#include "heaps/glibc/params.hpp"
#include "memory.hpp"

namespace reachscan::tests {

using heaps::kPage;
using heaps::glibc::ArenaLayout;
using heaps::glibc::CacheShape;
using heaps::glibc::kHeader;
using heaps::glibc::Links;
using heaps::glibc::ParamsLayout;

struct Release {
  const char* name;
  ArenaLayout arena;
  CacheShape cache;
  Links links;
  uint64_t heap_info;
  ParamsLayout params;
  uint64_t mapped_excess;  // not counted in the size of a mapped chunk
  bool counts_threads = true;

  bool has_cache() const { return cache.bins != 0; }
};

const std::vector<Release>& releases();
const Release& release_named(const char* name);

// User address -> usable bytes.
using Blocks = std::map<uint64_t, uint64_t>;

// Writes adjacent chunks, lowest first.
class Chunks {
 public:
  // `flags` are set in every size word (NON_MAIN_ARENA in thread arenas).
  Chunks(Memory& memory, uint64_t start, uint64_t flags = 0)
      : memory_(memory), at_(start), flags_(flags) {}

  // Writes a chunk that looks allocated and returns the user's address. `size` is that of the whole
  // chunk.
  uint64_t used(uint64_t size);
  // Like used(), for a block that a scan must find.
  uint64_t live(uint64_t size);
  // Writes a chunk that is in a bin.
  uint64_t free(uint64_t size);
  // Writes the top chunk, up to `end`.
  uint64_t top(uint64_t end);
  // Ends the run as sysmalloc does, with a top chunk of `top_size` bytes, when another heap
  // follows.
  void end_heap(uint64_t top_size);
  // The same, for when foreign code has moved the break.
  void end_break(uint64_t top_size);

  uint64_t at() const { return at_; }
  Blocks blocks;

 private:
  void header(uint64_t size);

  Memory& memory_;
  uint64_t at_;
  uint64_t flags_;
  uint64_t free_before_ = 0;  // size of a free chunk directly before
};

// Writes the structures that chunks are linked to.
class Glibc {
 public:
  Glibc(Memory& memory, const Release& release) : memory_(memory), release_(release) {}

  // Writes an arena with empty bins, not locked. `flags`: kNonContiguous or 0.
  void arena(uint64_t at, uint64_t top, uint64_t next, uint64_t system_mem, uint32_t flags = 0);
  // Makes a bin that holds one chunk.
  void put_in_bin(uint64_t arena, unsigned bin, uint64_t user);
  // Lists end with `last`, 0 in intact ones.
  void put_in_fastbin(uint64_t arena, const std::vector<uint64_t>& users, uint64_t last = 0);
  void empty_fastbins(uint64_t arena);
  // `sbrk_base_at` is the address of that field.
  void params(uint64_t sbrk_base_at, uint64_t sbrk_base, int32_t mapped, uint64_t mapped_bytes);
  void heap_info(uint64_t at, uint64_t arena, uint64_t previous, uint64_t size);
  // Makes the block `cache` an empty cache; put_in_cache() adds lists of blocks of one size.
  void cache(uint64_t cache);
  void put_in_cache(uint64_t cache, unsigned bin, const std::vector<uint64_t>& users,
                    uint64_t last = 0);
  // Writes a mapped block that starts `offset` bytes later than usual and returns the user's
  // address.
  uint64_t mapped(uint64_t base, uint64_t pages, uint64_t offset = 0);
  uint64_t mapped_tail() const { return release_.mapped_excess / 2; }

 private:
  void link(uint64_t at, uint64_t target);

  Memory& memory_;
  const Release& release_;
};

}  // namespace reachscan::tests
