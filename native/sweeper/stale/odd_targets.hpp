// What words that need not hold anything lead to, of whatever kind, with all its descendants. If
// these are too many, what certainly stale words lead to is entered alone, and any other word holds
// it.
#pragma once

#include "sweeper/mark/hash.hpp"
#include "sweeper/mark/scratch.hpp"
#include "sweeper/stale/descendants.hpp"

namespace reachscan::sweeper {

class OddTargets {
 public:
  OddTargets(const heaps::Space& space, heaps::BlockMap& blocks) : space_(space), blocks_(blocks) {}

  // Unmarks a block and its descendants. Returns false, and does nothing, if these are too many.
  bool add(uint64_t block) {
    if (found_.empty()) found_ = heaps::List<uint64_t>(map_memory, kMaxBlocks);
    std::size_t before = found_.size();
    if (!blocks_.is_marked(block)) return true;
    if (has_too_many_descendants(block)) return false;
    if (unmark_from(block)) return true;
    while (found_.size() > before) blocks_.mark(found_.pop());
    too_much_[too_much_slot(block)] = block;
    return false;
  }

  // The same without its descendants, after add() has returned false.
  void add_alone(uint64_t block) {
    if (alone_.empty()) alone_ = heaps::List<uint64_t>(map_memory, kMaxAlone);
    if (!alone_.push(block)) return;
    if (found_.push(block)) blocks_.clear_mark(block);
  }

  // Called once, after all calls to add().
  void sort() {
    heaps::sort(found_);
    heaps::sort(alone_);
  }

  // Sorted by address.
  const heaps::List<uint64_t>& blocks() const { return found_; }

  bool has(uint64_t block) const { return is_in(found_, block); }
  // Returns whether it is in question for no other reason than add_alone().
  bool is_alone(uint64_t block) const { return is_in(alone_, block); }

 private:
  static constexpr std::size_t kMaxBlocks = 1 << 18, kMaxAlone = 1 << 16;
  // The descendants of a target are all in question, or none of them.
  static constexpr std::size_t kMaxDescendants = 64;
  static constexpr uint64_t kMaxDescendantBytes = 1 << 18;
  static constexpr uint64_t kMaxBytesTried = 64 << 20;  // what it costs must not grow with the heap
  static constexpr unsigned kRejectedBits = 16;

  // Returns false if there are too many.
  bool unmark_from(uint64_t block) {
    std::size_t first = found_.size();
    uint64_t bytes = 0;
    auto enter = [&](uint64_t found) {
      if (has_too_many_descendants(found) || !found_.push(found)) return false;
      blocks_.clear_mark(found);
      bytes += blocks_.end_of(found) - found;
      return found_.size() - first <= kMaxDescendants && bytes <= kMaxDescendantBytes;
    };
    bool all = enter(block);
    for (std::size_t next = first; all && next < found_.size(); ++next)
      all = each_marked_child(space_, blocks_, found_[next], budget_, enter);
    return all;
  }

  // Returns whether an earlier attempt found too many descendants; some attempts are forgotten.
  bool has_too_many_descendants(uint64_t block) const {
    return too_much_[too_much_slot(block)] == block;
  }
  static uint64_t too_much_slot(uint64_t block) { return mixed(block, 0) >> (64 - kRejectedBits); }

  const heaps::Space& space_;
  heaps::BlockMap& blocks_;
  heaps::List<uint64_t> found_, alone_;
  Scratch<uint64_t> too_much_{1u << kRejectedBits};
  heaps::Budget budget_{kMaxBytesTried};
};

}  // namespace reachscan::sweeper
