// Blocks that begin with their size, as an allocator on top of malloc() makes them (SQLite and
// others). Pointers between such blocks lead to what follows the size.
//
//   size | contents          usable bytes: at least size + 8, and hardly more
//
// Where a word of such a block leads behind the first 8 bytes of another block, and these are not
// its size, that block is not the one that the word was meant for.
#pragma once

#include "memory/rounding.hpp"
#include "sweeper/mark/words.hpp"
#include "sweeper/search/stretches.hpp"
#include "sweeper/stale/targets.hpp"

namespace reachscan::sweeper {

class SizeHeaders {
 public:
  SizeHeaders(const heaps::Space& space, const heaps::BlockMap& blocks, Targets& targets)
      : space_(space), blocks_(blocks), targets_(targets) {}

  // Searches marked blocks; of a large heap, samples.
  void find() {
    Targets without(space_, blocks_);
    visit_marked_samples(blocks_, [&](heaps::Range block) {
      if (has_header(block)) look_at(block, without);
    });
    uint64_t odd = without.blocks().size();
    is_usual_ = pointers_ >= kFewestPointers && odd * kOneInPointers <= pointers_;
    if (!is_usual_) return;
    for (uint64_t block : without.blocks()) targets_.add(block);
  }

  // Returns whether the word was meant for a block that had a header.
  bool is_stale(uint64_t owner, uint64_t target, uint64_t value) const {
    return is_usual_ && value == target + kHeader && has_header(blocks_.range_of(owner)) &&
           !has_header(blocks_.range_of(target));
  }

 private:
  static constexpr uint64_t kHeader = sizeof(uint64_t);
  static constexpr uint64_t kFewestPointers = 64;  // between blocks with headers
  static constexpr uint64_t kOneInPointers = 16;   // more targets without would show intention

  static bool has_header(heaps::Range block) {
    uint64_t bytes = block.end - block.start;
    if (bytes <= kHeader) return false;
    uint64_t size = heaps::load<uint64_t>(block.start);
    return size != 0 && heaps::may_hold_request(bytes - kHeader, size);
  }

  // Counts pointers to blocks with headers, and adds blocks without one.
  void look_at(heaps::Range owner, Targets& without) {
    each_word(space_, owner.start, owner.end, [&](uint64_t, uint64_t value) {
      uint64_t target = value - kHeader;
      if (target % heaps::kGranule != 0 || blocks_.block_of(value) != target) return;
      if (target == 0 || !blocks_.is_marked(target)) return;
      if (has_header(blocks_.range_of(target))) {
        __atomic_fetch_add(&pointers_, 1, __ATOMIC_RELAXED);
      } else {
        without.add(target);
      }
    });
  }

  const heaps::Space& space_;
  const heaps::BlockMap& blocks_;
  uint64_t pointers_ = 0;  // to blocks with headers
  bool is_usual_ = false;  // that pointers lead to blocks with headers
  Targets& targets_;
};

}  // namespace reachscan::sweeper
