// What blocks in question lead to, of whatever kind. If the blocks turn out to be in doubt, these
// are, too, unless something else holds them.
#pragma once

#include "sweeper/blob/host.hpp"
#include "sweeper/mark/dense_maps.hpp"
#include "sweeper/mark/words.hpp"
#include "sweeper/roots/roots.hpp"

namespace reachscan::sweeper {

inline bool is_in(const heaps::List<uint64_t>& sorted, uint64_t block) {
  std::size_t at = heaps::lower_bound(sorted, block);
  return at < sorted.size() && sorted[at] == block;
}

// Calls visit(child) for each marked block that a word in the owner leads to, until it returns
// false. Returns whether it never did, and the budget sufficed.
template <typename Visit>
bool each_marked_child(const heaps::Space& space, const heaps::BlockMap& blocks, uint64_t owner,
                       heaps::Budget& budget, Visit visit) {
  uint64_t end = blocks.end_of(owner);
  bool all = budget.spend(end - owner);
  if (!all) return false;
  each_word(space, owner, end, [&](uint64_t slot, uint64_t value) {
    uint64_t child = all && blocks.may_point(value) ? blocks.block_of(value) : 0;
    if (child == 0 || !blocks.is_marked(child)) return;
    if (!is_left_behind(blocks, owner, slot, value)) all = visit(child);
  });
  return all;
}

class Descendants {
 public:
  static constexpr std::size_t kMaxBlocks = 1 << 14;

  Descendants(const heaps::Space& space, heaps::BlockMap& blocks)
      : space_(space), blocks_(blocks) {}

  // Unmarks what the owners lead to, unless that is too much. The owners are unmarked and sorted.
  void find(const heaps::List<uint64_t>& owners) {
    found_ = heaps::List<uint64_t>(map_memory, kMaxBlocks);
    heaps::Budget budget{kMaxBytes};
    auto enter = [this](uint64_t child) {
      bool fits = found_.push(child);
      if (fits) blocks_.clear_mark(child);
      return fits;
    };
    bool all = true;
    for (std::size_t i = 0; all && i < owners.size(); ++i)
      all = each_marked_child(space_, blocks_, owners[i], budget, enter);
    for (std::size_t i = 0; all && i < found_.size(); ++i)
      all = each_marked_child(space_, blocks_, found_[i], budget, enter);
    if (!all) restore_marks();
    if (!all) found_.clear();
    heaps::sort(found_);
  }

  bool has(uint64_t block) const { return is_in(found_, block); }

  // Returns the range that contains these and the owners.
  heaps::Range hull(const heaps::List<uint64_t>& owners) const {
    heaps::Range all{owners[0], blocks_.end_of(*(owners.end() - 1))};
    if (found_.empty()) return all;
    uint64_t end = blocks_.end_of(*(found_.end() - 1));
    return {all.start < found_[0] ? all.start : found_[0], all.end > end ? all.end : end};
  }

  void restore_marks() {
    for (uint64_t block : found_) blocks_.mark(block);
  }

  // Calls visit(block) for those that are marked again, or not.
  template <typename Visit>
  void each_marked(Visit visit) const {
    for (uint64_t block : found_)
      if (blocks_.is_marked(block)) visit(block);
  }
  template <typename Visit>
  void each_unmarked(Visit visit) const {
    for (uint64_t block : found_)
      if (!blocks_.is_marked(block)) visit(block);
  }

 private:
  static constexpr uint64_t kMaxBytes = 16 << 20;

  const heaps::Space& space_;
  heaps::BlockMap& blocks_;
  heaps::List<uint64_t> found_;  // sorted by address
};

}  // namespace reachscan::sweeper
