// The walker for the tcmalloc of gperftools, 2.8 to 2.18. heaps/heap.hpp has its contract.
//
//   layout          size classes, spans, central lists
//   search          all of these, by structure
//   metadata        the pages in which the allocator keeps its own structures
//   own_object      a block that the allocator has for itself
//   debug_block     a block of the debug form, which is not understood
//   spans           blocks of one class each, one large block, or nothing
//   caches          free, though spans count them as handed out
#pragma once

#include "heaps/instances.hpp"
#include "heaps/tcmalloc/caches.hpp"
#include "heaps/tcmalloc/search.hpp"
#include "heaps/tcmalloc/spans.hpp"

namespace reachscan::heaps::tcmalloc {

inline void describe_code(const Space& space, const Instance& instance, abi::QuiesceHint& hint) {
  describe_code_naming(space, instance.file, instance.variables(), hint);
}

class Walker : public Instances<Instance, kMaxInstances> {
 public:
  // The link to the next block of a list.
  static constexpr uint64_t kLinkBytes = 8;
  static constexpr bool kNeedsFine = true;

  Walker(const Space& space, const libc::Threads& threads, MapMemory)
      : Instances(space, threads, [&](auto& found) { return Search(space).find(found); }) {}

  Verdict enumerate(BlockMap& blocks, OnThreads on_threads, uint32_t first_arena) {
    for (std::size_t i = 0; i < count_; ++i) {
      uint32_t arena = first_arena + static_cast<uint32_t>(i);
      Metadata metadata(space_, blocks, arena);
      Verdict verdict =
          Spans(space_, instances_[i], metadata, arena, {blocks, totals, on_threads}).claim_all();
      if (!verdict.fine()) return verdict;
      verdict = Caches(space_, instances_[i], metadata, blocks, totals).drop_all();
      if (!verdict.fine()) return verdict;
    }
    return {};
  }

  void write_name(char (&name)[kNameLength]) const {
    constexpr char kName[] = "tcmalloc of gperftools";
    __builtin_memcpy(name, kName, sizeof kName);
  }

  // Chains in the central lists stay behind when their blocks are in use again.
  template <typename Visit>
  void each_variable(Visit visit) const {
    for (std::size_t i = 0; i < count_; ++i) {
      const Instance& instance = instances_[i];
      visit(Range{instance.root, instance.root + kRootBytes});
      visit(Range{instance.central, instance.central + kMaxClasses * instance.central_stride});
    }
  }
};

}  // namespace reachscan::heaps::tcmalloc
