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
  const LeftBehind left_behind(blocks, owner);
  each_word(space, owner, end, [&](uint64_t slot, uint64_t value) {
    uint64_t child = all ? blocks.block_of(value) : 0;
    if (child == 0 || !blocks.is_marked(child)) return;
    if (!left_behind.has(slot, value)) all = visit(child);
  });
  return all;
}

class Descendants {
 public:
  static constexpr std::size_t kMaxBlocks = 1 << 14;

  Descendants(const heaps::Space& space, heaps::BlockMap& blocks)
      : space_(space), blocks_(blocks) {}

  // Unmarks what the owners lead to, unless that is too much. The owners are unmarked.
  void add(const heaps::List<uint64_t>& owners) {
    if (owners.empty()) return;
    if (found_.empty()) found_ = heaps::List<uint64_t>(map_memory, kMaxBlocks);
    std::size_t before = found_.size();
    heaps::Budget budget{kMaxBytes};
    auto enter = [this](uint64_t child) {
      bool fits = found_.push(child);
      if (fits) blocks_.clear_mark(child);
      return fits;
    };
    bool all = true;
    for (std::size_t i = 0; all && i < owners.size(); ++i)
      all = each_marked_child(space_, blocks_, owners[i], budget, enter);
    for (std::size_t i = before; all && i < found_.size(); ++i)
      all = each_marked_child(space_, blocks_, found_[i], budget, enter);
    while (!all && found_.size() > before) blocks_.mark(found_.pop());
    heaps::sort(found_);
  }

  bool empty() const { return found_.empty(); }

  bool has(uint64_t block) const { return is_in(found_, block); }

  // Returns the range that contains these and some owners; there must be any.
  heaps::Range hull(const heaps::List<uint64_t>& owners) const {
    if (owners.empty()) return hull_of(found_);
    if (found_.empty()) return hull_of(owners);
    heaps::Range above = hull_of(owners), below = hull_of(found_);
    return {above.start < below.start ? above.start : below.start,
            above.end > below.end ? above.end : below.end};
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

  heaps::Range hull_of(const heaps::List<uint64_t>& sorted) const {
    return {sorted[0], blocks_.end_of(sorted[sorted.size() - 1])};
  }

  const heaps::Space& space_;
  heaps::BlockMap& blocks_;
  heaps::List<uint64_t> found_;  // sorted by address
};

}  // namespace reachscan::sweeper
