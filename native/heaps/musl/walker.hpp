// The walker for mallocng, the allocator of musl since 1.2.1. heaps/heap.hpp has its contract.
//
//   layout         context, descriptors of groups, headers of slots
//   find_context   the context, by structure
//   groups         slots that are in use, and groups within slots
//   quiet          whether a thread is inside the allocator right now
//
// No cache keeps blocks: a slot is free if its descriptor says so.
#pragma once

#include "heaps/instances.hpp"
#include "heaps/musl/groups.hpp"
#include "heaps/musl/quiet.hpp"

namespace reachscan::heaps::musl {

class Walker : public Instances<Context, kMaxContexts> {
 public:
  // Free slots are recorded in descriptors.
  static constexpr uint64_t kLinkBytes = 0;
  // The smallest slot has 16 bytes, and a block may end before its slot does.
  static constexpr bool kNeedsFine = true;

  Walker(const Space& space, const libc::Threads& threads, MapMemory)
      : Instances(space, threads, [&](auto& found) { return find_contexts(space, found); }) {}

  bool quiet(abi::QuiesceHint& hint) const {
    describe(hint);
    for (std::size_t t = 0; t < threads_.running_count; ++t)
      if (is_inside(space_, threads_.running[t], hint)) return false;
    return true;
  }

  Verdict enumerate(BlockMap& blocks, OnThreads on_threads, uint32_t first_arena) {
    Verdict verdict;
    for (std::size_t i = 0; i < count_ && verdict.fine(); ++i) {
      Groups groups(space_, first_arena + static_cast<uint32_t>(i), {blocks, totals, on_threads});
      verdict = groups.claim_all(instances_[i]);
    }
    return verdict;
  }

  static void write_name(char (&name)[kNameLength]) { __builtin_memcpy(name, "musl", 5); }

  template <typename Visit>
  void each_variable(Visit visit) const {
    for (std::size_t i = 0; i < count_; ++i)
      visit(Range{instances_[i].address, instances_[i].address + kContextBytes});
  }
};

}  // namespace reachscan::heaps::musl
