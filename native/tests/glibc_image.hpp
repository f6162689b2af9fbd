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
  uint64_t mapped_excess;  // what the size of a mapped chunk leaves out
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
  // `flags` stand in every size word (NON_MAIN_ARENA in thread arenas).
  Chunks(Memory& memory, uint64_t start, uint64_t flags = 0)
      : memory_(memory), at_(start), flags_(flags) {}

  // A chunk that looks allocated; returns the user's address. `size` is the whole chunk's.
  uint64_t used(uint64_t size);
  // As `used`, and one of the blocks that a scan has to find.
  uint64_t live(uint64_t size);
  // A chunk that lies in a bin.
  uint64_t free(uint64_t size);
  // The rest until `end`.
  uint64_t top(uint64_t end);
  // Ends the run as sysmalloc does for a top chunk of `top_size` bytes when another heap follows,
  void end_heap(uint64_t top_size);
  // or when somebody else has moved the break.
  void end_break(uint64_t top_size);

  uint64_t at() const { return at_; }
  Blocks blocks;

 private:
  void header(uint64_t size);

  Memory& memory_;
  uint64_t at_;
  uint64_t flags_;
  uint64_t free_before_ = 0;  // size of a free chunk right before
};

// Writes structures that chunks hang on.
class Glibc {
 public:
  Glibc(Memory& memory, const Release& release) : memory_(memory), release_(release) {}

  // All bins empty, not locked. `flags`: kNonContiguous or 0.
  void arena(uint64_t at, uint64_t top, uint64_t next, uint64_t system_mem, uint32_t flags = 0);
  // A bin with one chunk in it.
  void put_in_bin(uint64_t arena, unsigned bin, uint64_t user);
  // Lists end with `last`, which is 0 in healthy ones.
  void put_in_fastbin(uint64_t arena, const std::vector<uint64_t>& users, uint64_t last = 0);
  void empty_fastbins(uint64_t arena);
  // `sbrk_base_at` is the address of that field.
  void params(uint64_t sbrk_base_at, uint64_t sbrk_base, int32_t mapped, uint64_t mapped_bytes);
  void heap_info(uint64_t at, uint64_t arena, uint64_t previous, uint64_t size);
  // An empty cache in the block `cache`; then lists of blocks of one size.
  void cache(uint64_t cache);
  void put_in_cache(uint64_t cache, unsigned bin, const std::vector<uint64_t>& users,
                    uint64_t last = 0);
  // A mapped block that starts `offset` bytes later than usual; returns the user's address.
  uint64_t mapped(uint64_t base, uint64_t pages, uint64_t offset = 0);
  uint64_t mapped_tail() const { return release_.mapped_excess / 2; }

 private:
  void link(uint64_t at, uint64_t target);

  Memory& memory_;
  const Release& release_;
};

}  // namespace reachscan::tests
