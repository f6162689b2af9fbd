// Conservative marking: every aligned word of a root, and then of each block reached, that points
// anywhere into a live block marks it.
//
// Candidates wait on a stack; a short queue in front of it gives the memory time to arrive between
// prefetch and use ("prefetch on grey": Cher, Hosking, Vitek, 2004). Large memory is scanned in
// slices, so the stack holds a few hundred words per level of the graph, not the graph.
#pragma once

#include "sweeper/host.hpp"

namespace reachscan::sweeper {

using heaps::BlockMap;

class Marker {
 public:
  // `stack_words`: at most one candidate for each word of the heap can be waiting.
  Marker(const heaps::Space& space, BlockMap& blocks, uint64_t stack_words)
      : space_(space), blocks_(blocks), waiting_(map_memory, stack_words) {}

  // Scans [start, end), word-aligned, as a root.
  void mark_range(uint64_t start, uint64_t end) {
    for (uint64_t slice = start; slice < end; slice += kSlice) {
      scan(slice, end - slice < kSlice ? end : slice + kSlice);
      drain();
    }
  }

  // How much there is to scan, at most; for progress only.
  void expect(uint64_t bytes) { expected_ = bytes; }

  void mark_value(uint64_t value) {
    if (blocks_.may_point(value)) candidate(value);
    drain();
  }

 private:
  static constexpr uint64_t kSlice = 4096;
  static constexpr uint64_t kReport = 128 << 20;  // bytes between two reports of progress
  static constexpr unsigned kQueue = 32;          // a power of two
  // Tags in the top bit: a block already marked whose scan goes on from here.
  static constexpr uint64_t kResume = 1ull << 63;

  void candidate(uint64_t value) {
    if (!waiting_.push(value)) refuse(abi::Refusal::kNoMemory, "the mark stack is full", value);
  }

  void scan(uint64_t start, uint64_t end) {
    scanned_ += end - start;
    if (scanned_ - reported_ >= kReport) report();
    for (uint64_t at = start; at + 8 <= end; at += 8) {
      uint64_t value = heaps::word(at);
      if (blocks_.may_point(value)) candidate(value);
    }
  }

  void report() {
    reported_ = scanned_;
    begin_phase(wire::kMark, scanned_ < expected_ ? scanned_ : expected_, expected_);
  }

  // Scans one slice of the block from `from` on and leaves the rest for later.
  void scan_block(uint64_t from) {
    uint64_t end = blocks_.end_of(from);
    if (end - from > kSlice) {
      from = space_.skip_absent(from);
      if (from >= end) return;
    }
    if (end - from > kSlice) {
      candidate((from + kSlice) | kResume);
      end = from + kSlice;
    }
    scan(from, end);
  }

  void visit(uint64_t entry) {
    if ((entry & kResume) != 0) {
      scan_block(entry & ~kResume);
    } else if (uint64_t start = blocks_.mark(entry)) {
      scan_block(start);
    }
  }

  void drain() {
    unsigned head = 0, tail = 0;
    while (!waiting_.empty() || head != tail) {
      if (!waiting_.empty() && tail - head < kQueue) {
        uint64_t entry = waiting_.pop();
        if ((entry & kResume) == 0) blocks_.prefetch(entry);
        queue_[tail++ % kQueue] = entry;
      } else {
        visit(queue_[head++ % kQueue]);
      }
    }
  }

  const heaps::Space& space_;
  BlockMap& blocks_;
  heaps::List<uint64_t> waiting_;
  uint64_t queue_[kQueue];
  uint64_t scanned_ = 0;
  uint64_t reported_ = 0;
  uint64_t expected_ = 0;
};

}  // namespace reachscan::sweeper
