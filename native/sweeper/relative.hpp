// Distances in place of pointers: from the start of the block that holds them (the patterns of
// fontconfig), or from the very word (boost's offset_ptr).
//
// A small number that happens to be the distance to some block is common: each dict of Python has
// one, with a chance of one in six. So a field of blocks of one size counts only if most of what it
// holds leads to the start of some block, in all the heap.
#pragma once

#include "sweeper/host.hpp"
#include "sweeper/hull_test.hpp"
#include "sweeper/scratch.hpp"

namespace reachscan::sweeper {

using heaps::BlockMap;
using heaps::Range;

class RelativeFilter {
 public:
  explicit RelativeFilter(const heaps::Hulls& hulls)
      : hull_(hulls), wide_(control()->wide_words != 0) {}

  bool passes_at(uint64_t address) const {
    uint64_t value = heaps::word(address);
    return value != 0 && value % 8 == 0 && hull_.contains(address + value, kReach);
  }

  // Bit i: the word i of the 64 bytes at `line` may be such a distance.
  unsigned passing(uint64_t line) const {
    if (wide_) return passing_lanes(line);
    unsigned bits = 0;
    for (unsigned i = 0; i < 8; ++i) bits |= static_cast<unsigned>(passes_at(line + 8 * i)) << i;
    return bits;
  }

 private:
  // Distances from the start of a block are only looked for in so many bytes of it.
  static constexpr uint64_t kReach = 1 << 16;

  [[gnu::target(REACHSCAN_WIDE_TARGET)]] unsigned passing_lanes(uint64_t line) const {
    return bits_of_lanes(line) | bits_of_lanes(line + 32) << 4;
  }

  [[REACHSCAN_WIDE]] unsigned bits_of_lanes(uint64_t address) const {
    const arch::Lanes value = arch::load_lanes(address);
    const arch::Lanes at = arch::all_lanes(address) + arch::Lanes{0, 8, 16, 24};
    arch::Masks whole = (value & arch::all_lanes(7)) == arch::all_lanes(0);
    return arch::bits_of((value != arch::all_lanes(0)) & whole & hull_.contain(at + value, kReach));
  }

  HullTest hull_;
  bool wide_;
};

// Where in blocks of which size a distance stands, from where it is measured, and whether it is
// short, long or negative: most numbers are small.
using Field = uint64_t;

inline Field field_of(uint64_t size, uint64_t offset, bool from_word, uint64_t distance) {
  constexpr uint64_t kShort = 1024;
  uint64_t length = distance >> 63 != 0 ? 2 : distance < kShort ? 0 : 1;
  return size << 26 ^ offset << 3 ^ length << 1 ^ Field { from_word };
}

// Whether a word holds nothing but a few printable characters.
inline bool is_short_text(uint64_t value) {
  for (; value != 0; value >>= 8)
    if ((value & 0xff) < ' ' || (value & 0xff) > '~') return false;
  return true;
}

// Calls visit(field, target) for what the word at `at` of a block leads to if it is a distance.
template <typename Visit>
void each_target(Range block, uint64_t at, Visit visit) {
  uint64_t value = heaps::word(at), size = block.end - block.start, offset = at - block.start;
  // The allocator leaves this behind: how large the chunk was while it was free.
  if (at + 8 == block.end && value == size + 8) return;
  for (bool from_word : {false, true}) {
    uint64_t target = (from_word ? at : block.start) + value;
    if (target % heaps::kGranule != 0 || block.contains(target)) continue;
    if (!from_word || offset != 0) visit(field_of(size, offset, from_word, value), target);
  }
}

// How often each field leads to the start of a block, as far as was counted. Several threads may
// count.
class RelativeFields {
 public:
  enum class Standing { kNone, kPossible, kSure };

  bool known() const { return known_; }
  void set_known() { known_ = true; }

  void count(Field field, bool leads_to_block) {
    Row* row = row_of(field);
    if (row == nullptr) return;
    __atomic_add_fetch(&row->words, 1, __ATOMIC_RELAXED);
    if (leads_to_block) __atomic_add_fetch(&row->hits, 1, __ATOMIC_RELAXED);
  }

  // Of a field that leads to a block at least once.
  Standing standing(Field field) {
    const Row* row = row_of(field);
    if (row == nullptr || row->hits * 2 < row->words) return Standing::kNone;
    bool sure = row->hits >= kMany && row->hits * 4 >= row->words * 3;
    return sure ? Standing::kSure : Standing::kPossible;
  }

 private:
  static constexpr unsigned kRowBits = 17;
  static constexpr unsigned kMostProbes = 32;
  static constexpr uint64_t kMany = 8;

  struct Row {
    Field field;  // 0: none
    uint64_t words, hits;
  };

  // Null if there are too many fields.
  Row* row_of(Field field) {
    uint64_t slot = field * 0x9e3779b97f4a7c15ull >> (64 - kRowBits);
    for (unsigned probe = 0; probe < kMostProbes; ++probe) {
      Row& row = rows_[(slot + probe) % (1u << kRowBits)];
      Field seen = 0;
      if (__atomic_load_n(&row.field, __ATOMIC_RELAXED) == field ||
          __atomic_compare_exchange_n(&row.field, &seen, field, false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED) ||
          seen == field)
        return &row;
    }
    return nullptr;
  }

  Scratch<Row> rows_{1u << kRowBits};
  bool known_ = false;
};

}  // namespace reachscan::sweeper
