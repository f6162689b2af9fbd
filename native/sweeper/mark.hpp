// Conservative marking: every aligned word of a root, and then of each block reached, that points
// anywhere into a live block marks it.
//
// Candidates wait on a stack; a short queue in front of it gives the memory time to arrive between
// prefetch and use ("prefetch on grey": Cher, Hosking, Vitek, 2004). Large memory is scanned in
// slices, so the stack holds a few hundred words per level of the graph, not the graph. Several
// markers may work on one graph (team.hpp).
#pragma once

#include "sweeper/team.hpp"

namespace reachscan::sweeper {

using heaps::BlockMap;

class Marker {
 public:
  Marker(const heaps::Space& space, BlockMap& blocks, Team& team)
      : space_(space), blocks_(blocks), team_(team), hull_(blocks.hull()) {}

  // Scans [start, end), word-aligned, as a root.
  void mark_range(uint64_t start, uint64_t end) {
    root_ = {start, end};
    drain();
  }

  void mark_value(uint64_t value) {
    consider(value);
    drain();
  }

  // Works with the others until all that was given to any of them is marked. `nap` is called now
  // and then while there is nothing to do.
  template <typename Nap>
  void finish(Nap nap) {
    do {
      drain();
    } while (team_.wait(nap));
  }

  // How much there is to scan, at most; this marker then reports progress.
  void expect(uint64_t bytes) { expected_ = bytes; }

 private:
  static constexpr uint64_t kSlice = 4096;
  static constexpr uint64_t kReport = 64 << 20;  // bytes between two reports of progress
  static constexpr unsigned kQueue = 32;         // a power of two
  static constexpr std::size_t kStack = 8192;
  static constexpr uint64_t kLine = 64;  // bytes that are looked at together
  // Tags in the top bit: a block already marked whose scan goes on from here.
  static constexpr uint64_t kResume = 1ull << 63;

  void push(uint64_t entry) {
    if (depth_ == kStack) give_half();
    stack_[depth_++] = entry;
  }

  // The oldest entries: in a tree they lead to most.
  void give_half() {
    std::size_t half = depth_ / 2;
    team_.give(stack_, half);
    depth_ -= half;
    for (std::size_t i = 0; i < depth_; ++i) stack_[i] = stack_[half + i];
  }

  void share() {
    if (depth_ >= 2) give_half();
    uint64_t middle = heaps::align_up(root_.start / 2 + root_.end / 2, kSlice);
    if (root_.start < root_.end && root_.end > middle + kSlice &&
        team_.give(heaps::Range{middle, root_.end}))
      root_.end = middle;
  }

  void consider(uint64_t value) {
    if (blocks_.may_point(value)) push(value);
  }

  // Most words are no pointers. So the words of a line are compared without a branch for each.
  void scan(uint64_t start, uint64_t end) {
    count(end - start);
    const uint64_t low = hull_.start, span = hull_.end - hull_.start;
    uint64_t at = start;
    for (; at + kLine <= end; at += kLine) {
      unsigned inside = 0;
      for (unsigned i = 0; i < kLine / 8; ++i)
        inside |= static_cast<unsigned>(heaps::word(at + 8 * i) - low < span) << i;
      for (; inside != 0; inside &= inside - 1)
        consider(heaps::word(at + 8 * static_cast<unsigned>(__builtin_ctz(inside))));
    }
    for (; at + 8 <= end; at += 8)
      if (uint64_t value = heaps::word(at); value - low < span) consider(value);
  }

  void count(uint64_t bytes) {
    scanned_ += bytes;
    if (scanned_ < kReport) return;
    uint64_t together = team_.count(scanned_);
    scanned_ = 0;
    if (expected_ == 0) return;
    begin_phase(wire::kMark, together < expected_ ? together : expected_, expected_);
  }

  // Scans one slice of the block from `from` on and leaves the rest for later.
  void scan_block(uint64_t from) {
    uint64_t end = blocks_.end_of(from);
    if (end - from > kSlice) {
      from = space_.skip_absent(from);
      if (from >= end) return;
    }
    if (end - from > kSlice) {
      push((from + kSlice) | kResume);
      end = from + kSlice;
    }
    scan(from, end);
  }

  void scan_root() {
    uint64_t start = root_.start;
    root_.start = root_.end - start < kSlice ? root_.end : start + kSlice;
    scan(start, root_.start);
  }

  void visit(uint64_t entry) {
    if ((entry & kResume) != 0) {
      scan_block(entry & ~kResume);
    } else if (uint64_t start = team_.alone() ? blocks_.mark(entry) : blocks_.mark_shared(entry)) {
      scan_block(start);
    }
  }

  bool refill() {
    depth_ = team_.take(stack_, kStack / 2);
    if (depth_ == 0) root_ = team_.take_range();
    return depth_ != 0 || root_.start < root_.end;
  }

  // Until neither this marker nor the team has anything left.
  void drain() {
    unsigned head = 0, tail = 0;
    for (;;) {
      if (depth_ != 0 && tail - head < kQueue) {
        uint64_t entry = stack_[--depth_];
        if ((entry & kResume) == 0) blocks_.prefetch(entry);
        queue_[tail++ % kQueue] = entry;
        continue;
      }
      if (team_.hungry()) share();
      if (head != tail) {
        visit(queue_[head++ % kQueue]);
      } else if (root_.start < root_.end) {
        scan_root();
      } else if (depth_ == 0 && !refill()) {
        return;
      }
    }
  }

  const heaps::Space& space_;
  BlockMap& blocks_;
  Team& team_;
  heaps::Range hull_;
  heaps::Range root_{0, 0};  // what is left of it
  std::size_t depth_ = 0;
  uint64_t scanned_ = 0;
  uint64_t expected_ = 0;
  uint64_t queue_[kQueue];
  uint64_t stack_[kStack];
};

}  // namespace reachscan::sweeper
