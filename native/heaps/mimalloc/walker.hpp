// The walker for mimalloc, 1.7 to 1.9, 2.0 to 2.4 and 3.0 to 3.4. heaps/heap.hpp has its
// contract.
//
//   page_blocks     blocks of a page, and which of them are in free lists
//   layout          releases 1 and 2: segments, slices, pages, and the offsets of their fields
//   search          segments, and the variable used to sign them
//   segments        pages of segments
//   page_map        release 3: the map of pages, found by structure
//   mapped_pages    the pages that it leads to
#pragma once

#include "heaps/mimalloc/mapped_pages.hpp"
#include "heaps/mimalloc/segments.hpp"
#include "heaps/named_code.hpp"

namespace reachscan::heaps::mimalloc {

class Walker {
 public:
  // The link to the next block of a list.
  static constexpr uint64_t kLinkBytes = 8;
  static constexpr bool kNeedsFine = true;

  Walker(const Space& space, const libc::Threads& threads, MapMemory map)
      : space_(space),
        threads_(threads),
        map_(map),
        count_(Search(space).find(instances_)),
        map_count_(MapSearch(space).find(maps_)) {}

  bool is_present() const { return count_ > 0 || map_count_ > 0; }

  bool is_in(uint32_t file) const {
    for (std::size_t i = 0; i < count_; ++i)
      if (instances_[i].file == file) return true;
    for (std::size_t i = 0; i < map_count_; ++i)
      if (maps_[i].file == file) return true;
    return false;
  }

  bool quiet(abi::QuiesceHint& hint) const {
    describe(hint);
    return is_quiet_named(space_, threads_, hint);
  }

  // Functions that do not name the main heap, or the map, are between those that do.
  void describe(abi::QuiesceHint& hint) const {
    constexpr uint64_t kHeapBytes = 0x800, kAroundMap = 0x40;
    for (std::size_t i = 0; i < count_; ++i) {
      Range heap{instances_[i].main_heap, instances_[i].main_heap + kHeapBytes};
      describe_code_naming(space_, instances_[i].file, heap, hint);
    }
    for (std::size_t i = 0; i < map_count_; ++i) {
      Range around{maps_[i].variable - kAroundMap, maps_[i].variable + kAroundMap};
      describe_code_naming(space_, maps_[i].file, around, hint);
    }
  }

  bool interrupted(abi::QuiesceHint& hint) const {
    describe(hint);
    return any_interrupted(space_, threads_, hint);
  }

  Verdict enumerate(BlockMap& blocks, OnThreads on_threads, uint32_t first_arena) {
    for (std::size_t i = 0; i < count_; ++i) {
      Verdict verdict =
          Segments(space_, instances_[i], map_, first_arena + static_cast<uint32_t>(i),
                   {blocks, totals, on_threads})
              .claim_all();
      if (!verdict.fine()) return verdict;
    }
    for (std::size_t i = 0; i < map_count_; ++i) {
      Verdict verdict =
          MappedPages(space_, maps_[i], first_arena + static_cast<uint32_t>(count_ + i),
                      {blocks, totals, on_threads})
              .claim_all();
      if (!verdict.fine()) return verdict;
    }
    return {};
  }

  std::size_t arena_count() const { return count_ + map_count_; }

  void write_name(char (&name)[kNameLength]) const {
    constexpr char kNames[][17] = {
        "",           "mimalloc 1",       "mimalloc 2",       "mimalloc 1 and 2",
        "mimalloc 3", "mimalloc 1 and 3", "mimalloc 2 and 3", "mimalloc 1 to 3"};
    unsigned releases = map_count_ > 0 ? 4 : 0;
    for (std::size_t i = 0; i < count_; ++i)
      releases |= instances_[i].layout.is_release_1() ? 1 : 2;
    __builtin_memcpy(name, kNames[releases], sizeof kNames[releases]);
  }

  // The allocator's variables point to its structures only, not to blocks in use.
  template <typename Visit>
  void each_variable(Visit) const {}

  static Warning warning() { return {}; }

  Totals totals;

 private:
  const Space& space_;
  const libc::Threads& threads_;
  MapMemory map_;
  Instance instances_[kMaxInstances];
  std::size_t count_;
  PageMap maps_[kMaxInstances];
  std::size_t map_count_;
};

}  // namespace reachscan::heaps::mimalloc
