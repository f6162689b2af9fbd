// The walker for pools that the program has annotated with libreachscan (library/annotations.hpp):
// what is noted there is an allocation, everything else in them is free. heaps/heap.hpp has the
// contract of a walker.
//
// A pool may be in a block of another allocator, or in an object of another pool. Then it divides
// that block: the part before the pool stays a block, and the part after it counts as in use. So
// this walker comes last, and a pool is accepted only if it is entirely in one block.
#pragma once

#include "heaps/heap.hpp"
#include "library/annotations.hpp"

namespace reachscan::heaps::pools {

constexpr std::size_t kMax = 1 << 18;

// A block of another heap, part of which a pool has taken.
struct Divided {
  uint32_t arena;
  bool is_whole;   // nothing is left of it
  uint64_t bytes;  // taken by the pool
};

class Walker {
 public:
  // What the program's own lists leave in objects cannot be distinguished from intended pointers.
  static constexpr uint64_t kLinkBytes = 0;
  static constexpr bool kNeedsFine = true;

  // `header`: of the table of annotations, null if there is none.
  Walker(const Space& space, const libc::Threads&, MapMemory map, const library::Header* header)
      : space_(space), header_(header) {
    if (header == nullptr || !has_pools()) return;
    found_ = List<const library::Pool*>(map, kMax);
    divided = List<Divided>(map, kMax);
    each_entry([this](uint64_t start, uint64_t size) { note(start, size); });
  }

  bool is_present() const { return found_.size() + ignored_ > 0; }
  static bool is_in(uint32_t) { return false; }
  static bool quiet(abi::QuiesceHint&) { return true; }
  static void describe(abi::QuiesceHint&) {}
  static bool interrupted(abi::QuiesceHint&) { return false; }

  Verdict enumerate(BlockMap& blocks, OnThreads, uint32_t first_arena) {
    // Pools that contain others come first.
    heaps::sort(found_, [](const library::Pool* a, const library::Pool* b) {
      return a->start != b->start ? a->start < b->start : a->end > b->end;
    });
    for (const library::Pool* pool : found_) {
      uint32_t number = first_arena + static_cast<uint32_t>(arena_count_);
      bool room = true;
      if (pool->unknown != 0 || !claim(*pool, number, blocks, room)) {
        ++ignored_;
      } else {
        ++arena_count_;
        add_objects(*pool, blocks);
      }
      if (!room) return {Verdict::kNoMemory, nullptr, 0};
    }
    return {};
  }

  std::size_t arena_count() const { return arena_count_; }
  static void write_name(char (&name)[kNameLength]) { __builtin_memcpy(name, "pools", 6); }
  template <typename Visit>
  static void each_variable(Visit) {}
  Warning warning() const {
    if (ignored_ == 0) return {};
    return {"pools-ignored",
            "memory that the program has declared to be a pool counts as in use, and leaks among "
            "its objects are not found: an object in it could not be noted, or the memory is "
            "shared, gone, or in no single block"};
  }

  Totals totals;
  List<Divided> divided;

 private:
  template <typename Visit>
  void each_entry(Visit visit) const {
    library::each_entry(*header_,
                        [&](const library::Entry& entry, library::Kind kind, uint64_t size) {
                          if (kind == library::Kind::kPool) visit(entry.start, size);
                        });
  }

  bool has_pools() const {
    bool any = false;
    each_entry([&any](uint64_t, uint64_t) { any = true; });
    return any;
  }

  void note(uint64_t at, uint64_t bytes) {
    auto* pool = reinterpret_cast<const library::Pool*>(at);
    bool readable = at % kPage == 0 && bytes >= sizeof *pool && space_.readable(at, bytes);
    if (readable && pool->end == 0) return;  // not ready
    if (!readable || !is_sound(*pool, bytes) || !found_.push(pool)) ++ignored_;
  }

  bool is_sound(const library::Pool& pool, uint64_t bytes) const {
    return pool.start < pool.end && (pool.start | pool.end) % library::kPoolGranule == 0 &&
           bytes >= library::pool_bytes(pool.start, pool.end) && is_private(pool);
  }

  // Memory that other processes write to may differ from its state at the time of the scan.
  bool is_private(const library::Pool& pool) const {
    if (!space_.readable(pool.start, pool.end - pool.start)) return false;
    for (const abi::Mapping* m = space_.find(pool.start); m != space_.end() && m->start < pool.end;
         ++m)
      if ((m->perms & wire::kShared) != 0) return false;
    return true;
  }

  // Returns false if the memory is not as required.
  bool claim(const library::Pool& pool, uint32_t number, BlockMap& blocks, bool& room) {
    Region own{pool.start, pool.end, wire::kProgramPool, number, 0, 0};
    if (!blocks.may_point(pool.start) || !blocks.may_point(pool.end - 1)) return false;
    if (const Region* around = blocks.region_in({pool.start, pool.end})) {
      if (!divide(*around, own, blocks, room)) return false;
    } else {
      room = blocks.add_region(own);
    }
    blocks.drop_edges(pool.start, pool.end);
    blocks.add_boundary(pool.start);
    // A block of another allocator may start there.
    if (!blocks.is_live(pool.end)) blocks.add_boundary(pool.end);
    return room;
  }

  // Takes the pool out of the block around it.
  bool divide(const Region& around, const Region& pool, BlockMap& blocks, bool& room) {
    if (pool.start < around.start || pool.end > around.end) return false;
    uint64_t block = blocks.holder_in(around, pool.start);
    if (block == 0) return false;
    uint64_t edge = blocks.cluster_of(block)->next_edge(block + kGranule);
    uint64_t end =
        around.exact_end != nullptr ? around.exact_end(around, block) : edge - around.tail;
    if (pool.end > align_up(end, kGranule)) return false;
    bool is_whole = block == pool.start;
    room = divided.push({around.arena, is_whole, end - (is_whole ? block : pool.start)});
    Region below = around, rest = around, above = around;
    below.end = rest.start = block;
    rest.end = pool.start;
    rest.tail = 0;
    rest.exact_end = nullptr;
    above.start = edge;
    room = room && blocks.regions.replace(around, {pool, below, rest, above});
    return true;
  }

  void add_objects(const library::Pool& pool, BlockMap& blocks) {
    static_assert(library::kPoolGranule == kGranule || !kFine || kWord != 8);
    for (uint64_t base = pool.start & ~(library::kPoolSpan - 1); base < pool.end;
         base += library::kPoolSpan) {
      library::Pool::Bits bits = pool.bits(base < pool.start ? pool.start : base);
      uint64_t inside = ~0ull;
      if (base < pool.start) inside &= ~0ull << bit_of(pool.start);
      if (pool.end - base < library::kPoolSpan) inside &= ~(~0ull << bit_of(pool.end));
      blocks.add_edges(base, bits.starts & inside, bits.ends & ~bits.starts & inside);
    }
    blocks.each_live_in({pool.start, pool.end},
                        [&](uint64_t block) { totals.add(blocks.end_of(block) - block); });
  }

  const Space& space_;
  const library::Header* header_;
  List<const library::Pool*> found_;
  std::size_t arena_count_ = 0;
  std::size_t ignored_ = 0;
};

}  // namespace reachscan::heaps::pools
