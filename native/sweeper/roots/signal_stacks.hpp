// Blocks that may be a thread's alternate signal stack (sigaltstack()). Usually only the kernel
// knows its address, and tells only the thread itself.
#pragma once

#include "sweeper/blob/host.hpp"
#include "sweeper/mark/words.hpp"

namespace reachscan::sweeper {

using heaps::BlockMap;
using heaps::List;

constexpr uint64_t kMinSignalStack = 2048;  // MINSIGSTKSZ

class SignalStacks {
 public:
  SignalStacks(const heaps::Space& space, const BlockMap& blocks, std::size_t unmarked)
      : space_(space), blocks_(blocks), candidates_(map_memory, unmarked) {}

  // Calls visit(block) for unmarked blocks that no other unmarked block points to, at most as many
  // as threads that may have such a stack. Stacks are alike, so either all blocks of a size are
  // visited or none. Sizes in whole KiB come first, and small ones before large ones.
  template <typename Visit>
  void each(std::size_t threads, Visit visit) {
    if (threads == 0) return;
    blocks_.each_unmarked([this](uint64_t block) {
      uint64_t size = blocks_.end_of(block) - block;
      if (size >= kMinSignalStack) candidates_.push({block, size, false});
    });
    if (candidates_.empty()) return;
    blocks_.each_unmarked([this](uint64_t block) { exclude_children(block); });
    heaps::sort(candidates_, comes_before);
    for (std::size_t first = 0, next; first < candidates_.size(); first = next) {
      std::size_t owned = 0;
      for (next = first; next < candidates_.size(); ++next) {
        if (candidates_[next].size != candidates_[first].size) break;
        owned += candidates_[next].owned ? 1 : 0;
      }
      std::size_t alike = next - first;
      if (alike > threads) continue;
      threads -= alike - owned;
      for (std::size_t i = first; i < next; ++i)
        if (!candidates_[i].owned) visit(candidates_[i].block);
    }
  }

 private:
  struct Candidate {
    uint64_t block;
    uint64_t size;
    bool owned;
  };

  // glibc adds a word to whole KiB, or the rest of the last page to a large block.
  static bool has_whole_kib_size(uint64_t size) {
    return size % 1024 == heaps::kWord || (size + 2 * heaps::kWord) % heaps::kPage == 0;
  }

  static bool comes_before(const Candidate& a, const Candidate& b) {
    bool whole = has_whole_kib_size(a.size);
    return whole == has_whole_kib_size(b.size) ? a.size < b.size : whole;
  }

  // Candidates are sorted by address here.
  void exclude_children(uint64_t block) {
    each_word(space_, block, blocks_.end_of(block), [&](uint64_t, uint64_t value) {
      uint64_t child = blocks_.block_of(value);
      if (child == 0 || child == block) return;
      std::size_t at = heaps::partition_point(
          candidates_.size(), [&](std::size_t i) { return candidates_[i].block < child; });
      if (at < candidates_.size() && candidates_[at].block == child) candidates_[at].owned = true;
    });
  }

  const heaps::Space& space_;
  const BlockMap& blocks_;
  List<Candidate> candidates_;
};

}  // namespace reachscan::sweeper
