// The walker for the tcmalloc of gperftools, 2.8 to 2.18. heaps/heap.hpp has its contract.
//
//   layout          size classes, spans, central lists
//   search          all of these, by structure
//   metadata        the pages in which the allocator keeps its own structures
//   own_object      a block that the allocator has for itself
//   spans           blocks of one class each, one large block, or nothing
//   caches          free, though spans count them as handed out
#pragma once

#include "heaps/named_code.hpp"
#include "heaps/tcmalloc/caches.hpp"
#include "heaps/tcmalloc/search.hpp"
#include "heaps/tcmalloc/spans.hpp"

namespace reachscan::heaps::tcmalloc {

class Walker {
 public:
  // The link to the next block of a list.
  static constexpr uint64_t kLinkBytes = 8;
  static constexpr bool kNeedsFine = true;

  Walker(const Space& space, const libc::Threads& threads, MapMemory)
      : space_(space), threads_(threads), count_(Search(space).find(instances_)) {}

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

  void describe(abi::QuiesceHint& hint) const {
    for (std::size_t i = 0; i < count_; ++i)
      describe_code_naming(space_, instances_[i].file, instances_[i].variables(), hint);
  }

  bool interrupted(abi::QuiesceHint& hint) const {
    describe(hint);
    return any_interrupted(space_, threads_, hint);
  }

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

  std::size_t arena_count() const { return count_; }

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

  static Warning warning() { return {}; }

  Totals totals;

 private:
  const Space& space_;
  const libc::Threads& threads_;
  Instance instances_[kMaxInstances];
  std::size_t count_;
};

}  // namespace reachscan::heaps::tcmalloc
