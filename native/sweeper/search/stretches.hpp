// Reads the heap on several threads, sequentially, one range after the other. Walking from block to
// block would take longer than reading everything.
#pragma once

#include "sweeper/mark/parallel_run.hpp"

namespace reachscan::sweeper {

// Memory is examined in several ways while this many bytes of it are in the processor's cache.
constexpr uint64_t kPiece = 16 << 10;

// Calls look(start, end) for the pieces of [start, end). They overlap by a word, which may start in
// one and end in the next, but not behind `limit`.
template <typename Look>
void each_piece(uint64_t start, uint64_t end, uint64_t limit, Look look) {
  for (uint64_t next; start < end; start = next) {
    next = (start & ~(kPiece - 1)) + kPiece;
    if (next > end) next = end;
    look(start, limit - next < heaps::kWord ? limit : next + heaps::kWord);
  }
}

// What searches that need not be complete read at most, so that a large heap costs no more.
constexpr uint64_t kSampleBytes = 128 << 20;

class Stretches {
 public:
  // Called for each piece.
  using Look = void (*)(void* self, uint64_t start, uint64_t end);

  Stretches(const heaps::BlockMap& blocks, Look look, void* self)
      : blocks_(blocks), look_(look), self_(self) {}

  // Examines at most this many bytes, evenly sampled from the heap.
  [[gnu::noinline]] void run(uint64_t most) {
    uint64_t bytes = sample(most);
    on_threads(
        bytes, [](void* self) { static_cast<Stretches*>(self)->take_some(); }, this);
  }

  // The same on this thread, in the order of addresses. Returns of how many pieces one is examined.
  [[gnu::noinline]] uint64_t run_in_order(uint64_t most) {
    sample(most);
    take_some();
    return one_in_;
  }

 private:
  static constexpr uint64_t kWorkPacketBytes = 4 << 20;  // of the heap, taken by a thread at once

  // Returns how many bytes will be examined.
  uint64_t sample(uint64_t most) {
    uint64_t bytes = blocks_.regions.bytes();
    one_in_ = bytes / most + 1;
    return bytes / one_in_;
  }

  // Called on each thread.
  void take_some() {
    auto take = [this] { return __atomic_fetch_add(&taken_, 1, __ATOMIC_RELAXED); };
    uint64_t mine = take(), stretch = 0;
    for (const heaps::Region& region : blocks_.regions) {
      for (uint64_t start = heaps::align_up(region.start, heaps::kWord); start < region.end;
           start += kWorkPacketBytes, ++stretch) {
        if (stretch != mine) continue;
        visit_pieces(start,
                     region.end - start < kWorkPacketBytes ? region.end : start + kWorkPacketBytes,
                     region.end);
        mine = take();
      }
    }
  }

  void visit_pieces(uint64_t start, uint64_t end, uint64_t region_end) {
    each_piece(start, end, region_end, [this](uint64_t from, uint64_t to) {
      if (from / kPiece % one_in_ == 0) look_(self_, from, to);
    });
  }

  const heaps::BlockMap& blocks_;
  Look look_;
  void* self_;
  uint64_t taken_ = 0;
  uint64_t one_in_ = 1;  // pieces
};

template <typename Look>
void call(void* look, uint64_t start, uint64_t end) {
  (*static_cast<Look*>(look))(start, end);
}

// Calls look(start, end) for the whole heap, piece by piece, or for samples of `most` bytes in all.
template <typename Look>
void visit_heap(const heaps::BlockMap& blocks, Look look, uint64_t most = ~0ull) {
  Stretches(blocks, call<Look>, &look).run(most);
}

// The same on one thread, for a result that depends on the order. Returns of how many pieces one
// was examined.
template <typename Look>
uint64_t visit_heap_in_order(const heaps::BlockMap& blocks, Look look, uint64_t most) {
  return Stretches(blocks, call<Look>, &look).run_in_order(most);
}

// Calls visit(block) for the live blocks, or the marked ones, that start in a piece of a heap. The
// piece includes the first word of the next one, where a block may start.
template <typename Visit>
void each_live_in_piece(const heaps::BlockMap& blocks, heaps::Range piece, Visit visit) {
  blocks.each_live_in({piece.start, piece.end - heaps::kWord}, visit);
}
template <typename Visit>
void each_marked_in_piece(const heaps::BlockMap& blocks, heaps::Range piece, Visit visit) {
  blocks.each_marked_in({piece.start, piece.end - heaps::kWord}, visit);
}

// Calls visit(range of the block) for each marked block; of a large heap, for samples.
template <typename Visit>
void visit_marked_samples(const heaps::BlockMap& blocks, Visit visit) {
  auto look = [&](uint64_t start, uint64_t end) {
    each_marked_in_piece(blocks, {start, end},
                         [&](uint64_t block) { visit(blocks.range_of(block)); });
  };
  visit_heap(blocks, look, kSampleBytes);
}

}  // namespace reachscan::sweeper
