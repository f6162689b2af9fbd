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

#include "heaps/named_code.hpp"
#include "heaps/scudo/caches.hpp"
#include "heaps/scudo/classes.hpp"
#include "heaps/scudo/guarded.hpp"
#include "heaps/scudo/large_blocks.hpp"
#include "heaps/scudo/search.hpp"

namespace reachscan::heaps::scudo {

class Walker {
 public:
  // Free blocks are listed elsewhere.
  static constexpr uint64_t kLinkBytes = 0;
  // A block may end anywhere in its last word.
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
    Verdict verdict;
    Enumeration found{blocks, totals, on_threads};
    for (std::size_t i = 0; i < count_ && verdict.fine(); ++i) {
      uint32_t arena = first_arena + static_cast<uint32_t>(i);
      const Instance& instance = instances_[i];
      Checksums checksums(instance.cookie());
      verdict = Classes(space_, instance, checksums, arena, found).claim_all();
      if (verdict.fine())
        verdict = LargeBlocks(space_, instance, checksums, arena, found).claim_all();
      if (verdict.fine()) verdict = Guarded(space_, instance, arena, found).claim_all();
    }
    return verdict;
  }

  std::size_t arena_count() const { return count_; }

  static void write_name(char (&name)[kNameLength]) { __builtin_memcpy(name, "Scudo", 6); }

  template <typename Visit>
  void each_variable(Visit visit) const {
    for (std::size_t i = 0; i < count_; ++i) each_cache(space_, threads_, instances_[i], visit);
  }

  static Warning warning() { return {}; }

  Totals totals;

 private:
  const Space& space_;
  const libc::Threads& threads_;
  Instance instances_[kMaxInstances];
  std::size_t count_;
};

}  // namespace reachscan::heaps::scudo
