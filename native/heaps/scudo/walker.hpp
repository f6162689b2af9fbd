// The walker for Scudo as in LLVM 14 to 19. heaps/heap.hpp has its contract.
//
//   layout          size classes, headers of blocks, large blocks
//   checksum        of headers
//   search          the descriptions of size classes, by structure
//   classes         blocks of each size class
//   large_blocks    blocks with mappings of their own
//   guarded         blocks between guard pages
//   caches          of free blocks
//
// The header of a block says whether the program has it, whatever cache or quarantine it is in.
#pragma once

#include "heaps/instances.hpp"
#include "heaps/scudo/caches.hpp"
#include "heaps/scudo/classes.hpp"
#include "heaps/scudo/guarded.hpp"
#include "heaps/scudo/large_blocks.hpp"
#include "heaps/scudo/search.hpp"

namespace reachscan::heaps::scudo {

inline void describe_code(const Space& space, const Instance& instance, abi::QuiesceHint& hint) {
  describe_code_naming(space, instance.file, instance.variables(), hint);
}

class Walker : public Instances<Instance, kMaxInstances> {
 public:
  // Free blocks are listed elsewhere.
  static constexpr uint64_t kLinkBytes = 0;
  // A block may end anywhere in its last word.
  static constexpr bool kNeedsFine = true;

  Walker(const Space& space, const libc::Threads& threads, MapMemory)
      : Instances(space, threads, [&](auto& found) { return Search(space).find(found); }) {}

  Verdict enumerate(BlockMap& blocks, OnThreads on_threads, uint32_t first_arena) {
    Verdict verdict;
    Enumeration found{blocks, totals, on_threads};
    for (std::size_t i = 0; i < count_ && verdict.fine(); ++i) {
      uint32_t arena = first_arena + static_cast<uint32_t>(i);
      const Instance& instance = instances_[i];
      Checksums checksums(instance.cookie());
      // What they count tells soon whether it is a release that is known.
      verdict = LargeBlocks(space_, instance, checksums, arena, found).claim_all();
      if (verdict.fine()) verdict = Classes(space_, instance, checksums, arena, found).claim_all();
      if (verdict.fine()) verdict = Guarded(space_, instance, arena, found).claim_all();
    }
    return verdict;
  }

  static void write_name(char (&name)[kNameLength]) { __builtin_memcpy(name, "Scudo", 6); }

  template <typename Visit>
  void each_variable(Visit visit) const {
    for (std::size_t i = 0; i < count_; ++i) each_cache(space_, threads_, instances_[i], visit);
  }
};

}  // namespace reachscan::heaps::scudo
