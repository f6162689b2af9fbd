// Distances in place of pointers: from the start of the block that holds them (the patterns and
// arrays of fontconfig), or from the word itself (boost's offset_ptr).
//
// Small numbers that happen to be the distance to some block are common: each Python dict contains
// one, with a chance of one in six. So a field of blocks of one size counts only if most of its
// values lead to the start of some block, in the whole heap; or, where other blocks of that size
// hold numbers there, most of the values that lead to an unmarked block.
#pragma once

#include "sweeper/blob/host.hpp"
#include "sweeper/mark/dense_maps.hpp"
#include "sweeper/mark/hash.hpp"
#include "sweeper/mark/scratch.hpp"
#include "sweeper/search/hull_test.hpp"

namespace reachscan::sweeper {

using heaps::BlockMap;
using heaps::Range;

class RelativeFilter {
 public:
  explicit RelativeFilter(const heaps::Hulls& hulls) : hull_(hulls) {}

  bool passes_at(uint64_t address) const {
    uint64_t value = heaps::word(address);
    return value != 0 && value % heaps::kWord == 0 &&
           hull_.contains(heaps::wrapped(address + value), kReach);
  }

  // Bit i is set if word i of this many lines may be such a distance.
  uint64_t passing(uint64_t at, unsigned lines) const { return hull_.passing(*this, at, lines); }

  // The same for the four words from `address` on.
  template <bool kTwo>
  [[REACHSCAN_WIDE]] unsigned bits_of_lanes(uint64_t address) const {
    const arch::Lanes value = arch::load_lanes(address);
    const arch::Lanes at = arch::all_lanes(address) + arch::Lanes{0, 8, 16, 24};
    arch::Masks whole = (value & arch::all_lanes(7)) == arch::all_lanes(0);
    return arch::bits_of((value != arch::all_lanes(0)) & whole &
                         hull_.contain<kTwo>(at + value, kReach));
  }

 private:
  // Distances from the start of a block are searched for only in this many bytes of it.
  static constexpr uint64_t kReach = 1 << 16;

  HullTest hull_;
};

// Identifies the blocks that hold a distance and its offset there, the address it is relative to,
// and whether it is short, long or negative: most numbers are small.
using Field = uint64_t;
constexpr unsigned kLengthBit = 1, kSizeBit = 29;
constexpr uint64_t kLengths = 3;

inline Field of_length(Field field, uint64_t length) {
  return (field & ~(3ull << kLengthBit)) | length << kLengthBit;
}

// Distinguishes blocks of one size by how they begin: with zero, a number, two of them, a pointer,
// or something longer. If the word at `offset` is not on the page of the start, that page need not
// be present.
inline uint64_t beginning_of(Range block, uint64_t offset) {
  if (block.start % heaps::kPage == 0 && offset >= heaps::kPage) return 0;
  uint64_t first = heaps::word(block.start);
  constexpr unsigned kMinBits[] = {1, 33, 41, 48};
  uint64_t kind = 0;
  for (unsigned bits : kMinBits) kind += first >> (bits - 1) != 0;
  return kind;
}

inline Field field_of(Range block, uint64_t offset, bool from_word, uint64_t distance) {
  constexpr uint64_t kShort = 1024;
  uint64_t length = heaps::as_signed(distance) < 0 ? 2 : distance < kShort ? 0 : 1;
  return (block.end - block.start) << kSizeBit ^ beginning_of(block, offset) << 26 ^ offset << 3 ^
         length << kLengthBit ^ Field { from_word };
}

constexpr bool is_from_word(Field field) { return field % 2 != 0; }

// A remainder too small for a free chunk stays with the block, so blocks of one kind have two
// sizes.
constexpr uint64_t kTooLittle = 16;
inline Field of_smaller_block(Field field) { return field - (kTooLittle << kSizeBit); }

// Returns whether a word consists of a few printable characters. A single one may as well be a
// number.
inline bool is_short_text(uint64_t value) {
  if (value <= 0xff) return false;
  for (; value != 0; value >>= 8)
    if ((value & 0xff) < ' ' || (value & 0xff) > '~') return false;
  return true;
}

// Calls visit(field, target) for what the word at `at` of a block leads to if it is a distance.
template <typename Visit>
void each_target(Range block, uint64_t at, Visit visit) {
  uint64_t value = heaps::word(at), size = block.end - block.start, offset = at - block.start;
  // The allocator leaves the size of the chunk there from when it was free.
  if (at + heaps::kWord == block.end && value == size + heaps::kWord) return;
  if (FreeKeys::is_one(value)) return;
  for (bool from_word : {false, true}) {
    uint64_t target = heaps::wrapped((from_word ? at : block.start) + value);
    if (target % heaps::kGranule != 0 || block.contains(target)) continue;
    if (!from_word || offset != 0) visit(field_of(block, offset, from_word, value), target);
  }
}

// How often fields lead to the start of a block, among those counted. Several threads may add and
// count.
//
// Distances differ from block to block. A constant in many blocks proves nothing: where blocks of
// one size are consecutive, it leads to a block from each of them; elsewhere, other blocks of that
// size contain it, too. So each value counts once.
class RelativeFields {
 public:
  enum class Standing { kNone, kPossible, kCertain };

  struct Tally {
    uint64_t values;  // a bit per value counted; some share one, so a few bits suffice
    uint32_t words, hits;

    bool has(uint64_t value) const {
      return (__atomic_load_n(&values, __ATOMIC_RELAXED) & bit_of(value)) != 0;
    }

    // Returns false if that value has already been counted.
    bool count(uint64_t value, bool hit) {
      if (has(value)) return false;
      if ((__atomic_fetch_or(&values, bit_of(value), __ATOMIC_RELAXED) & bit_of(value)) != 0)
        return false;
      __atomic_add_fetch(&words, 1, __ATOMIC_RELAXED);
      if (hit) __atomic_add_fetch(&hits, 1, __ATOMIC_RELAXED);
      return true;
    }

    void add(const Tally& other) {
      words += other.words;
      hits += other.hits;
    }

    bool is_mostly_hits(uint64_t weight_of_misses = 1) const {
      return hits >= 3 * weight_of_misses * (words - hits);
    }
    bool is_sure() const { return hits >= kMany && is_mostly_hits(); }

   private:
    // Mixed twice: values often occur at equal intervals, and must not collide because of that.
    static uint64_t bit_of(uint64_t value) {
      uint64_t mixed = value * kGolden;
      return 1ull << ((mixed ^ mixed >> 32) * kGolden >> 58);
    }
  };

  struct Row {
    Field field;        // 0: none
    Tally all;          // of words that lead into the heap; a hit leads to the start of a block
    Tally lost;         // of those that lead into unmarked blocks
    uint32_t surprise;  // bits: the probability of all hits of `lost` by chance is 1 in 2^surprise

    void count_lost(uint64_t value, bool hit, uint64_t size_of_block) {
      uint64_t granules = size_of_block / heaps::kGranule + 1;
      if (granules > kMaxGranules) granules = kMaxGranules;
      if (!lost.count(value, hit) || !hit) return;
      __atomic_add_fetch(&surprise, 63 - __builtin_clzll(granules), __ATOMIC_RELAXED);
    }

    void add(const Row& other) {
      all.add(other.all);
      lost.add(other.lost);
      surprise += other.surprise;
    }
  };

  bool empty() const { return !__atomic_load_n(&any_, __ATOMIC_RELAXED); }

  // Adds a field, with distances of other lengths at the same offset. Has no effect if there are
  // too many.
  void add(Field field) {
    if (empty()) __atomic_store_n(&any_, true, __ATOMIC_RELAXED);
    for (uint64_t length = 0; length < kLengths; ++length) add_row(of_length(field, length));
  }

  // Called if, of the words that lead into unmarked blocks, all hits were counted, but only one in
  // so many of the others.
  void weigh_misses(uint64_t one_in) { weight_of_misses_ = one_in; }

  // Returns null if it was not added.
  Row* find(Field field) const {
    for (unsigned probe = 0; probe < kProbeLimit; ++probe) {
      Row* found = row(field, probe);
      if (found->field == field) return found;
      if (found->field == 0) return nullptr;
    }
    return nullptr;
  }

  // For a field that leads to a block at least once. What is certain in smaller blocks is likely in
  // larger ones.
  Standing standing(Field field) const {
    Standing own = standing_by_itself(field);
    if (own == Standing::kCertain) return own;
    if (standing_by_itself(of_smaller_block(field)) != Standing::kCertain) return own;
    return own == Standing::kPossible ? Standing::kCertain : Standing::kPossible;
  }

 private:
  static constexpr unsigned kRowBits = 16;
  static constexpr unsigned kProbeLimit = 32;
  static constexpr uint32_t kMany = 8;
  static constexpr uint32_t kSurprising = 24;  // bits: there may be several thousand fields
  // More would prove nothing more: round numbers lead to the start of a large block.
  static constexpr uint64_t kMaxGranules = 64;

  // Where one length has too few values, all lengths count; and if those leave no doubt, other
  // numbers of this length do not rule it out.
  Standing standing_by_itself(Field field) const {
    const Row* row = find(field);
    if (row == nullptr) return Standing::kNone;
    Row any_length{};
    for (uint64_t length = 0; length < kLengths; ++length)
      if (const Row* other = find(of_length(field, length))) any_length.add(*other);
    bool is_surprising =
        any_length.lost.is_mostly_hits(weight_of_misses_) && any_length.surprise >= kSurprising;
    if (is_surprising && row->lost.is_mostly_hits(weight_of_misses_)) return Standing::kCertain;
    if (row->all.hits * 2 < row->all.words)
      return any_length.all.is_sure() ? Standing::kPossible : Standing::kNone;
    return row->all.is_sure() || any_length.all.is_sure() ? Standing::kCertain
                                                          : Standing::kPossible;
  }

  void add_row(Field field) {
    for (unsigned probe = 0; probe < kProbeLimit; ++probe) {
      Field* at = &row(field, probe)->field;
      Field seen = __atomic_load_n(at, __ATOMIC_RELAXED);
      if (seen == 0)
        __atomic_compare_exchange_n(at, &seen, field, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
      if (seen == 0 || seen == field) return;
    }
  }

  Row* row(Field field, unsigned probe) const {
    uint64_t slot = field * kGolden >> (64 - kRowBits);
    return &rows_.get()[(slot + probe) % (1u << kRowBits)];
  }

  mutable Scratch<Row> rows_{1u << kRowBits};
  bool any_ = false;
  uint64_t weight_of_misses_ = 1;
};

}  // namespace reachscan::sweeper
