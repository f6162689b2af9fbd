// Whether the last word of a block is a field, or was added by rounding the size up.
//
// The allocator returns 24 bytes for a request of 16, and the other 8 keep their old content until
// something writes to them. If most blocks of a kind end with a pointer into the heap, it is a
// field. If only a few of many do, it is stale. So is a pointer into the middle of a block where
// hardly any others lead there. Nothing is known of a rare structure, although many others may
// begin like it.
#pragma once

#include "sweeper/blocks/word_kinds.hpp"
#include "sweeper/mark/hash.hpp"
#include "sweeper/mark/scratch.hpp"
#include "sweeper/search/stretches.hpp"

namespace reachscan::sweeper {

class LastWords {
 public:
  LastWords(const heaps::Space& space, const BlockMap& blocks)
      : space_(space), blocks_(blocks), words_(space, blocks) {}

  bool is_last(uint64_t owner, uint64_t slot) const {
    return blocks_.ends_at(owner, slot + heaps::kWord);
  }

  // Requests that blocks like the owner be counted. If there are too many kinds, nothing is known
  // of the rest.
  void ask(uint64_t owner) {
    const uint64_t kind = kind_of(owner);
    for (uint64_t key : {kind, with_more_words(owner, kind)}) {
      if (used_ == kRows / 2) return;
      Row& row = row_of(key);
      if (row.kind == 0) ++used_;
      row.kind = key;
    }
    sizes_[size_slot(owner)] = 1;
  }

  // Called once, after all calls to ask().
  void count() {
    if (used_ == 0) return;
    visit_heap(blocks_, [this](uint64_t start, uint64_t end) {
      each_live_in_piece(blocks_, {start, end}, [this](uint64_t block) { count(block); });
    });
  }

  // For owners passed to ask(): whether such blocks end with a pointer, and, if this one leads into
  // the middle of a block, whether that is usual.
  bool are_fields(uint64_t owner, bool leads_inside) const {
    const uint64_t kind = kind_of(owner);
    const Row &row = row_of(kind), &alike = row_of(with_more_words(owner, kind));
    if (alike.blocks < kMinAlike || row.blocks < kMinSampleBlocks) return true;
    if (leads_inside && row.inside * kOneInInside < row.blocks) return false;
    return row.pointers * kOneInFields >= row.blocks;
  }

 private:
  static constexpr uint64_t kMinSampleBlocks = 8;  // fewer are not conclusive
  static constexpr uint64_t kMinAlike = 4;         // fewer are a rare structure
  static constexpr uint64_t kOneInFields = 4;      // others may be null
  static constexpr uint64_t kOneInInside = 16;     // all others lead to starts
  static constexpr unsigned kMinTextBytes = 4;     // characters
  static constexpr unsigned kKeyWords = 4;
  static constexpr unsigned kRowBits = 12;
  static constexpr std::size_t kRows = 1u << kRowBits, kSizes = 1u << 12;

  struct Row {
    uint64_t kind;                      // or one with more words; 0: none
    uint64_t blocks, pointers, inside;  // of the pointers, those into the middle of blocks
  };

  uint64_t size_of(uint64_t block) const { return blocks_.end_of(block) - block; }
  uint64_t size_slot(uint64_t block) const { return size_of(block) / heaps::kGranule % kSizes; }

  // Blocks are of one kind if they have the same size and similar first words. Never 0.
  uint64_t kind_of(uint64_t block) const {
    uint64_t first = heaps::word(block);
    uint64_t kind = words_.of(first, true);
    if (kind == WordKinds::kPlain && is_text(first)) kind = kText;
    return mixed(mixed(0, size_of(block)), kind) | 1;
  }

  // Returns the key of those blocks of the kind that are also similar in a few more words.
  uint64_t with_more_words(uint64_t block, uint64_t kind) const {
    uint64_t key = mixed(kind, kKeyWords), last = blocks_.end_of(block) - heaps::kWord;
    for (unsigned i = 1; i < kKeyWords && block + i * heaps::kWord < last; ++i)
      key = mixed(key, sort_of(heaps::word(block + i * heaps::kWord)));
    return key | 1;
  }

  // What function a word leads to does not make a structure rare.
  uint64_t sort_of(uint64_t value) const {
    return space_.is_code(value) ? kCode : words_.of(value, false);
  }

  // Returns whether it consists of characters only, or of the last ones of a text followed by
  // zeros. A word with fewer characters is more likely a number.
  static bool is_text(uint64_t value) {
    if (value >> 8 * (kMinTextBytes - 1) == 0) return false;
    for (; static_cast<uint8_t>(value) != 0; value >>= 8) {
      auto byte = static_cast<uint8_t>(value);
      if (byte == 0x7f || (byte < ' ' && byte != '\t' && byte != '\n' && byte != '\r'))
        return false;
    }
    return value == 0;
  }

  void count(uint64_t block) {
    if (sizes_[size_slot(block)] == 0) return;
    const uint64_t kind = kind_of(block);
    Row& row = row_of(kind);
    if (row.kind == 0) return;
    __atomic_fetch_add(&row.blocks, 1, __ATOMIC_RELAXED);
    Row& alike = row_of(with_more_words(block, kind));
    if (alike.kind != 0) __atomic_fetch_add(&alike.blocks, 1, __ATOMIC_RELAXED);
    uint64_t last = heaps::word(blocks_.end_of(block) - heaps::kWord);
    uint64_t target = blocks_.block_of(last);
    if (target == 0) return;
    __atomic_fetch_add(&row.pointers, 1, __ATOMIC_RELAXED);
    if (target != last) __atomic_fetch_add(&row.inside, 1, __ATOMIC_RELAXED);
  }

  // Returns the row of the kind, or a free one.
  Row& row_of(uint64_t kind) const {
    std::size_t slot = mixed(kind, 0) >> (64 - kRowBits);
    while (rows_.get()[slot].kind != 0 && rows_.get()[slot].kind != kind) slot = (slot + 1) % kRows;
    return rows_.get()[slot];
  }

  static constexpr uint64_t kText = ~0ull, kCode = ~1ull;

  const heaps::Space& space_;
  const BlockMap& blocks_;
  WordKinds words_;
  mutable Scratch<Row> rows_{kRows};
  Scratch<uint8_t> sizes_{kSizes};  // 1: blocks of such a size are counted
  std::size_t used_ = 0;
};

}  // namespace reachscan::sweeper
