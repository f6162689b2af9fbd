// Counts the leaked and the live blocks of each kind. Blocks are of one kind if they have the same
// size and similar leading words; for large blocks, the leading words do not matter. Some leaked
// blocks have changed at the front since they were like others, so blocks of the same size are
// counted together as well, unless that is a size that all sorts of blocks have.
#pragma once

#include "sweeper/blocks/word_kinds.hpp"
#include "sweeper/mark/hash.hpp"
#include "sweeper/mark/scratch.hpp"
#include "sweeper/search/stretches.hpp"

namespace reachscan::sweeper {

using heaps::BlockMap;
using heaps::Range;

class KindCounts {
 public:
  KindCounts(const heaps::Space& space, const BlockMap& blocks)
      : blocks_(blocks), words_(space, blocks) {}

  // Never 0.
  uint64_t kind_of(uint64_t block) const { return kind_of(blocks_.range_of(block)); }

  // Returns whether the first word alone tells what the block is.
  bool is_object(uint64_t block) const { return words_.tells_class(heaps::word(block)); }

  // Has no effect if there are too many kinds.
  void add_leaked(uint64_t block) {
    const Range whole = blocks_.range_of(block);
    for (uint64_t kind : {kind_of(whole), kind_of_size(whole)}) {
      Row* row = row_of(kind);
      if (row == nullptr) return;
      if (row->kind == 0) ++used_;
      row->kind = kind;
      ++row->leaked;
    }
    sizes_[size_slot(whole)] = 1;
  }

  // Counts all live blocks, on several threads, after all leaked blocks have been added. Calls
  // visit(block) for each that is of a kind, or a size, of which enough are leaked to draw
  // conclusions. Stops when that returns false, which leaves the counts unknown.
  template <typename Visit>
  void count_live(Visit visit) {
    bool stopped = false;
    visit_heap(blocks_, [&](uint64_t start, uint64_t end) {
      if (__atomic_load_n(&stopped, __ATOMIC_RELAXED)) return;
      const Range piece{start, end};
      bool any = false;
      each_marked_in_piece(blocks_, piece,
                           [&](uint64_t block) { any = fetch(blocks_.range_of(block)) || any; });
      if (!any) return;
      each_marked_in_piece(blocks_, piece, [&](uint64_t block) {
        if (add_live(blocks_.range_of(block)) && !visit(block))
          __atomic_store_n(&stopped, true, __ATOMIC_RELAXED);
      });
    });
  }

  // Valid when all blocks have been counted. Sometimes leaked: whether each live block of its kind
  // was visited.
  bool is_often_leaked(uint64_t block) const {
    const Row* row = row_of(kind_of(block));
    return row != nullptr && row->leaked >= kMinLeaked && row->live <= kOftenLive * row->leaked;
  }
  bool is_sometimes_leaked(uint64_t block) const {
    const Row* row = row_of(kind_of(block));
    return row != nullptr && row->leaked >= kMinLeaked &&
           row->live <= kMaxLivePerLeak * row->leaked;
  }

  bool is_mostly_leaked(uint64_t block) const {
    const Row* row = row_of(kind_of(block));
    return row != nullptr && row->leaked >= kMinLeaked && row->live <= row->leaked;
  }

  bool is_sometimes_leaked_by_size(uint64_t block) const {
    const Range whole = blocks_.range_of(block);
    const Row* row = row_of(kind_of_size(whole));
    return is_telling_size(whole) && row != nullptr && row->leaked >= kMinLeakedOfSize &&
           row->live <= kOftenLive * row->leaked;
  }

  // Counts blocks that also seem to be leaked, and returns whether there are no more of these than
  // leaked ones. Many stale words lead into large blocks, so for these the limit grows with their
  // size.
  void add_odd(uint64_t block) {
    if (Row* row = row_to_compare(block)) ++row->odd;
  }
  bool few_are_odd(uint64_t block) const {
    const Row* row = row_to_compare(block);
    return row != nullptr &&
           row->odd <= row->leaked * (1 + (blocks_.end_of(block) - block) / heaps::kPage);
  }

 private:
  static constexpr unsigned kKeyWords = 4;
  static constexpr uint64_t kMinLeaked = 2, kMinLeakedOfSize = 8;
  static constexpr uint64_t kLeastTellingBytes = 128;
  static constexpr uint64_t kOftenLive = 16, kMaxLivePerLeak = 64;  // per leaked block
  static constexpr unsigned kRowBits = 16;
  static constexpr std::size_t kRows = 1u << kRowBits, kSizes = 1u << 12;

  struct Row {
    uint64_t kind;  // 0: none
    uint64_t leaked, live, odd;
  };

  uint64_t kind_of(Range block) const {
    const uint64_t size = block.end - block.start;
    uint64_t kind = mixed(0, size);
    unsigned words = size < heaps::kPage ? kKeyWords : 0;
    if (words != 0) kind = mixed(kind, words_.of_first(heaps::word(block.start)));
    for (unsigned i = 1; i < words && heaps::kWord * (i + 1) <= size; ++i)
      kind = mixed(kind, words_.of(heaps::word(block.start + heaps::kWord * i), false));
    return mixed(kind, 0) | 1;
  }

  static uint64_t kind_of_size(Range block) {
    return mixed(~mixed(0, block.end - block.start), 0) | 1;
  }

  static bool is_telling_size(Range block) { return block.end - block.start >= kLeastTellingBytes; }

  static uint64_t size_slot(Range block) {
    return (block.end - block.start) / heaps::kGranule % kSizes;
  }

  // Reads ahead what add_live() will look up: a pointer in a block leads anywhere in the bitmaps.
  // Returns false if add_live() would, without looking anything up.
  bool fetch(Range block) const {
    if (sizes_[size_slot(block)] == 0) return false;
    const Range head = heaps::head_of(block);
    for (uint64_t at = head.start; at + heaps::kWord <= head.end; at += heaps::kWord)
      blocks_.fetch_edges(heaps::word(at));
    return true;
  }

  // Thread-safe. Returns false if too few blocks of the kind are leaked.
  bool add_live(Range block) {
    if (sizes_[size_slot(block)] == 0) return false;
    bool is_of_kind = add_live(kind_of(block), kMinLeaked);
    bool is_of_size = is_telling_size(block) && add_live(kind_of_size(block), kMinLeakedOfSize);
    return is_of_kind || is_of_size;
  }
  bool add_live(uint64_t kind, uint64_t least_leaked) {
    Row* row = row_of(kind);
    if (row == nullptr || row->leaked < least_leaked) return false;
    // More need not be counted, and threads would wait for each other.
    uint64_t most = kMaxLivePerLeak * row->leaked;
    if (__atomic_load_n(&row->live, __ATOMIC_RELAXED) > most) return false;
    return __atomic_fetch_add(&row->live, 1, __ATOMIC_RELAXED) < most;
  }

  // Returns the row of its kind if enough of these are leaked, or else of its size.
  Row* row_to_compare(uint64_t block) const {
    const Range whole = blocks_.range_of(block);
    return row_of(is_sometimes_leaked(block) ? kind_of(whole) : kind_of_size(whole));
  }

  // Returns the row of the kind, or a free one; null if the table is full.
  Row* row_of(uint64_t kind) const {
    std::size_t slot = kind >> (64 - kRowBits);
    Row* row = &rows_.get()[slot];
    while (row->kind != 0 && row->kind != kind) row = &rows_.get()[slot = (slot + 1) % kRows];
    return row->kind == 0 && used_ > kRows / 4 * 3 ? nullptr : row;
  }

  const BlockMap& blocks_;
  WordKinds words_;
  mutable Scratch<Row> rows_{kRows};
  Scratch<uint8_t> sizes_{kSizes};  // 1: a leaked block has such a size
  std::size_t used_ = 0;
};

}  // namespace reachscan::sweeper
