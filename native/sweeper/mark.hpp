// Conservative marking: every aligned word of a root, and then of each block reached, that points
// anywhere into a live block marks it.
//
// Candidates wait on a stack; from there they go in batches through three stages, which give the
// memory time to arrive between prefetch and use (as a queue does in "prefetch on grey": Cher,
// Hosking, Vitek, 2004). Large memory is scanned in slices, so the stack holds a few hundred words
// per level of the graph, not the graph. Several markers may work on one graph (team.hpp).
#pragma once

#include "arch/x86_64_lanes.hpp"
#include "sweeper/team.hpp"

namespace reachscan::sweeper {

using heaps::BlockMap;

class Marker {
 public:
  Marker(const heaps::Space& space, BlockMap& blocks, Team& team)
      : space_(space),
        blocks_(blocks),
        team_(team),
        hull_(blocks.hull()),
        wide_(control()->wide_words != 0) {}

  // Scans [start, end), word-aligned, as a root.
  void mark_range(uint64_t start, uint64_t end) {
    root_ = {start, end};
    drain();
  }

  void mark_value(uint64_t value) {
    if (blocks_.may_point(value)) push(value);
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
  static constexpr unsigned kBatch = 16;
  static constexpr unsigned kLines = 4;  // of a block, fetched before it is scanned
  static constexpr std::size_t kStack = 8192;
  static constexpr uint64_t kLine = 64;  // bytes that are looked at together
  // Tags in the top bit: a block already marked whose scan goes on from here.
  static constexpr uint64_t kResume = 1ull << 63;

  struct Candidate {
    uint64_t entry;
    BlockMap::Place place;  // none: the scan of a block that goes on
  };

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

  // Most words are no pointers, and no branch could guess which are. So none is taken for a word.
  void scan(uint64_t start, uint64_t end) {
    count(end - start);
    uint64_t lines = (end - start) & ~(kLine - 1);
    if (lines != 0)
      wide_ ? scan_lines_wide(start, start + lines) : scan_lines(start, start + lines);
    make_room();
    // Local, or the compiler would have to expect that what is stored changes them.
    const uint64_t low = hull_.start, length = hull_.end - hull_.start;
    std::size_t depth = depth_;
    for (uint64_t at = start + lines; at + 8 <= end; at += 8) {
      uint64_t value = heaps::word(at);
      stack_[depth] = value;
      depth += value - low < length;
    }
    depth_ = depth;
  }

  [[gnu::target("avx2,bmi")]] void scan_lines_wide(uint64_t start, uint64_t end) {
    const arch::Lanes low = arch::all_lanes(hull_.start),
                      length = arch::all_lanes(hull_.end - hull_.start);
    for (uint64_t line = start; line < end; line += kLine) {
      arch::Masks first = arch::load_lanes(line) - low < length;
      arch::Masks second = arch::load_lanes(line + kLine / 2) - low < length;
      push_some(line, arch::bits_of(first) | arch::bits_of(second) << 4);
    }
  }

  void scan_lines(uint64_t start, uint64_t end) {
    const uint64_t low = hull_.start, length = hull_.end - hull_.start;
    for (uint64_t line = start; line < end; line += kLine) {
      unsigned inside = 0;
      for (unsigned i = 0; i < kLine / 8; ++i)
        inside |= static_cast<unsigned>(heaps::word(line + 8 * i) - low < length) << i;
      push_some(line, inside);
    }
  }

  // For the candidates of a line.
  void make_room() {
    if (depth_ + kLine / 8 > kStack) give_half();
  }

  // Bit i of `inside`: the word i of the line is a candidate.
  [[gnu::always_inline]] void push_some(uint64_t line, unsigned inside) {
    if (inside == 0) return;
    make_room();
    std::size_t depth = depth_;
    for (; inside != 0; inside &= inside - 1)
      stack_[depth++] = heaps::word(line + 8 * static_cast<unsigned>(__builtin_ctz(inside)));
    depth_ = depth;
  }

  void count(uint64_t bytes) {
    scanned_ += bytes;
    if (scanned_ < kReport) return;
    uint64_t together = team_.count(scanned_);
    scanned_ = 0;
    if (expected_ == 0) return;
    begin_phase(wire::kMark, together < expected_ ? together : expected_, expected_);
  }

  // Scans one slice of the rest of a block and leaves what is behind it for later.
  void scan_block(uint64_t from, uint64_t end) {
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

  // The three stages. Each takes a batch, so that the memory answers for all of it together.

  void scan_claimed() {
    const unsigned count = claimed_count_;
    claimed_count_ = 0;
    for (unsigned i = 0; i < count; ++i) scan_block(claimed_[i].start, claimed_[i].end);
  }

  template <bool kShared>
  void claim_candidates() {
    unsigned claimed = 0;
    for (unsigned i = 0; i < candidate_count_; ++i) {
      const Candidate next = candidates_[i];
      heaps::Range block;
      if (next.place) {
        block = blocks_.claim<kShared>(next.entry, next.place);
        if (block.start == 0) continue;
        for (uint64_t line = 1; line < kLines && block.start + line * kLine < block.end; ++line)
          fetch(block.start + line * kLine);
      } else {
        block = {next.entry & ~kResume, blocks_.end_of(next.entry & ~kResume)};
      }
      claimed_[claimed++] = block;
    }
    claimed_count_ = claimed;
    candidate_count_ = 0;
  }

  void fetch_candidates() {
    std::size_t depth = depth_;
    unsigned count = 0;
    while (depth != 0 && count < kBatch) {
      uint64_t entry = stack_[--depth];
      BlockMap::Place place{};
      if ((entry & kResume) == 0) {
        place = blocks_.place_of(entry);
        if (!place) continue;
        __builtin_prefetch(place.pair);
        fetch(entry);
      }
      candidates_[count++] = {entry, place};
    }
    depth_ = depth;
    candidate_count_ = count;
  }

  // Inlined by force: GCC 12 drops calls of a function that does nothing but prefetch.
  [[gnu::always_inline]] static void fetch(uint64_t address) {
    __builtin_prefetch(reinterpret_cast<const void*>(address));
  }

  bool refill() {
    depth_ = team_.take(stack_, kStack / 2);
    if (depth_ == 0) root_ = team_.take_range();
    return depth_ != 0 || root_.start < root_.end;
  }

  // Until neither this marker nor the team has anything left.
  void drain() {
    for (;;) {
      if (team_.hungry()) share();
      if (depth_ == 0 && candidate_count_ == 0 && claimed_count_ == 0) {
        if (root_.start < root_.end) {
          scan_root();
        } else if (!refill()) {
          return;
        }
      }
      scan_claimed();
      if (team_.alone()) {
        claim_candidates<false>();
      } else {
        claim_candidates<true>();
      }
      fetch_candidates();
    }
  }

  const heaps::Space& space_;
  BlockMap& blocks_;
  Team& team_;
  heaps::Range hull_;
  bool wide_;
  heaps::Range root_{0, 0};  // what is left of it
  std::size_t depth_ = 0;
  uint64_t scanned_ = 0;
  uint64_t expected_ = 0;
  unsigned candidate_count_ = 0, claimed_count_ = 0;
  Candidate candidates_[kBatch];
  heaps::Range claimed_[kBatch];
  uint64_t stack_[kStack];
};

}  // namespace reachscan::sweeper
