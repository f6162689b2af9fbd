// The walker for mimalloc, 2.0.9 to 2.4. heaps/heap.hpp tells what a walker owes.
//
//   layout          segments, slices, pages, and where their fields are
//   search          segments, and the variable that they are signed with
//   segments        blocks, and which of them are in lists of free ones
#pragma once

#include "heaps/mimalloc/segments.hpp"
#include "heaps/named_code.hpp"

namespace reachscan::heaps::mimalloc {

class Walker {
 public:
  // The next block of a list.
  static constexpr uint64_t kLinkBytes = 8;
  static constexpr bool kNeedsFine = true;

  Walker(const Space& space, const libc::Threads& threads, MapMemory map)
      : space_(space), threads_(threads), map_(map), count_(Search(space).find(instances_)) {}

  bool is_present() const { return count_ > 0; }

  bool is_in(uint32_t file) const {
    for (std::size_t i = 0; i < count_; ++i)
      if (instances_[i].file == file) return true;
    return false;
  }

  bool quiet(abi::QuiesceHint& hint) const {
    describe(hint);
    return is_quiet_named(space_, threads_, hint);
  }

  // Functions that do not name the main heap lie between those that do.
  void describe(abi::QuiesceHint& hint) const {
    constexpr uint64_t kHeapBytes = 0x800;
    for (std::size_t i = 0; i < count_; ++i) {
      Range heap{instances_[i].main_heap, instances_[i].main_heap + kHeapBytes};
      describe_code_naming(space_, instances_[i].file, heap, hint);
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
    return {};
  }

  std::size_t arena_count() const { return count_; }

  void write_name(char (&name)[kNameLength]) const {
    constexpr char kName[] = "mimalloc 2";
    __builtin_memcpy(name, kName, sizeof kName);
  }

  // What the allocator's variables point to is in its structures, and no block in use.
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
};

}  // namespace reachscan::heaps::mimalloc
