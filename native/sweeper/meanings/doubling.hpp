// Arrays that grow by pieces, each twice as large as the previous one, so that elements never move.
// The table of pieces has a word for each: the address that element 0 would have if the piece also
// held all earlier elements. That is as far before the piece as the piece is large.
//
// One such word proves nothing: where blocks of one size are adjacent, it is a pointer to the
// preceding block. It counts if it is in a row of words that lead in the same way to blocks, each
// twice as large as the one before, and if a neighbour in that row leads to a block that nothing
// points to, either.
#pragma once

#include "memory/rounding.hpp"
#include "sweeper/blob/host.hpp"
#include "sweeper/meanings/candidates.hpp"
#include "sweeper/search/range_filter.hpp"

namespace reachscan::sweeper {

using heaps::Range;

// Passes words that lead to pieces and have a neighbour that does, too.
class TableFilter {
 public:
  // `hulls`: the values of words that lead to pieces.
  explicit TableFilter(const heaps::Hulls& hulls) : pieces_(hulls) {}

  bool passes_at(uint64_t address) const { return pieces_.passes_at(address); }

  // Bit i is set if word i of this many lines may pass. What is next to the lines is not known.
  uint64_t passing(uint64_t at, unsigned lines) const {
    uint64_t bits = pieces_.passing(at, lines);
    uint64_t last = 1ull << (heaps::kLine / heaps::kWord * lines - 1);
    return bits & (bits << 1 | bits >> 1 | 1 | last);
  }

 private:
  RangeFilter pieces_;
};

class DoublingArrays {
 public:
  DoublingArrays(const heaps::Space& space, const BlockMap& blocks, const Candidates& candidates)
      : space_(space),
        blocks_(blocks),
        candidates_(candidates),
        pieces_(map_memory, candidates.count()),
        hint_count_(hints_for(candidates.count())),
        hints_(hint_count_ / kHintsPerWord) {
    Scratch<uint8_t> sizes(kSizes);  // 1: a candidate has such a size
    candidates.each([&](uint64_t block) { sizes[size_slot(size_of(block))] = 1; });
    candidates.each([&](uint64_t block) {
      uint64_t size = size_of(block);
      if (any_about(sizes, 2 * size) || any_about(sizes, size / 2)) add(block, size);
    });
    heaps::sort(pieces_, [](const Piece& a, const Piece& b) { return a.least < b.least; });
  }

  bool is_empty() const { return pieces_.empty(); }

  // Returns the hulls of the candidates, extended by the values of words that lead to pieces.
  heaps::Hulls widened(heaps::Hulls hulls) const {
    for (const Piece& piece : pieces_)
      for (Range* hull : {&hulls.low, &hulls.high})
        if (hull->contains(piece.block) && piece.least < hull->start) hull->start = piece.least;
    return hulls;
  }

  // Calls visit(block, is_sure) for each piece that the word at `at` leads to. The table of a word
  // in a block is that block, otherwise `around`.
  template <typename Visit>
  void each_piece_at(uint64_t at, Range around, Visit visit) const {
    uint64_t value = heaps::word(at);
    if (!is_hinted(value) || !may_be_in_row(at, around)) return;
    uint64_t holder = blocks_.block_of(at);
    const Range table = holder != 0 ? Range{holder, blocks_.end_of(holder)} : around;
    each_piece(value, [&](uint64_t block) {
      uint64_t length = block - value;
      bool is_lost = candidates_.find(piece_at(table, at - heaps::kWord, length / 2)) != kNone ||
                     candidates_.find(piece_at(table, at + heaps::kWord, length * 2)) != kNone;
      unsigned words = is_lost ? words_around(table, at, length) : 0;
      if (words >= kMinWords) visit(block, words >= kSureWords);
    });
  }

 private:
  static constexpr uint32_t kNone = Candidates::kNone;
  static constexpr uint64_t kSizes = 1u << 16;
  static constexpr uint64_t kHint = 32;  // bytes of address space per hint
  static constexpr uint64_t kLeastHints = 1u << 15, kMostHints = 1u << 25;
  static constexpr uint64_t kHintsPerCandidate = 64, kHintsPerWord = 64;
  // Fewer words in a row are pointers to the neighbours of lost blocks: of 137,000 blocks that were
  // taken for lost, 1,093 had two such words by chance, 3 had three, none had four.
  static constexpr unsigned kMinWords = 3, kSureWords = 4;

  // A candidate, and the smallest value of a word that leads to it.
  struct Piece {
    uint64_t least;
    uint64_t block;
  };

  static uint64_t hints_for(uint64_t candidates) {
    uint64_t hints = kLeastHints;
    while (hints < kMostHints && hints < kHintsPerCandidate * candidates) hints *= 2;
    return hints;
  }
  uint64_t hint_of(uint64_t value) const { return value / kHint & (hint_count_ - 1); }
  bool is_hinted(uint64_t value) const {
    uint64_t hint = hint_of(value);
    return (hints_[hint / kHintsPerWord] >> hint % kHintsPerWord & 1) != 0;
  }

  // Returns false if neither neighbour can lead to a candidate, which is cheaper to find out than
  // which block the word is in. Does not look at other pages, which may be absent.
  bool may_be_in_row(uint64_t at, Range around) const {
    auto may_lead_to_piece = [&](uint64_t slot) {
      bool is_near = slot / heaps::kPage == at / heaps::kPage && around.contains(slot) &&
                     around.end - slot >= heaps::kWord;
      return !is_near || is_hinted(heaps::word(slot));
    };
    return may_lead_to_piece(at - heaps::kWord) || may_lead_to_piece(at + heaps::kWord);
  }

  static uint64_t size_slot(uint64_t size) { return size / heaps::kGranule % kSizes; }
  uint64_t size_of(uint64_t block) const { return blocks_.end_of(block) - block; }

  // Returns whether a candidate may have about that size, allowing for rounding of both.
  static bool any_about(const Scratch<uint8_t>& sizes, uint64_t size) {
    uint64_t below = 2 * heaps::rounding(size),
             most = size + heaps::rounding(size) + heaps::kGranule;
    for (uint64_t some = size > below ? size - below : 0; some < most; some += heaps::kGranule)
      if (sizes[size_slot(some)] != 0) return true;
    return false;
  }

  void add(uint64_t block, uint64_t size) {
    uint64_t least = block - size, most = least + heaps::rounding(size);
    pieces_.push({least, block});
    if (heaps::rounding(size) > most_rounding_) most_rounding_ = heaps::rounding(size);
    for (uint64_t value = least & ~(kHint - 1); value <= most; value += kHint)
      hints_[hint_of(value) / kHintsPerWord] |= 1ull << hint_of(value) % kHintsPerWord;
  }

  // Calls visit(block) for each candidate that the value may lead to.
  template <typename Visit>
  void each_piece(uint64_t value, Visit visit) const {
    std::size_t next = heaps::partition_point(
        pieces_.size(), [&](std::size_t i) { return pieces_[i].least + most_rounding_ < value; });
    for (; next < pieces_.size() && pieces_[next].least <= value; ++next)
      if (is_as_large(pieces_[next].block, pieces_[next].block - value)) visit(pieces_[next].block);
  }

  bool is_as_large(uint64_t block, uint64_t length) const {
    uint64_t size = size_of(block);
    return length != 0 && length <= size && size - length <= heaps::rounding(size);
  }

  // Returns the live block of this length that the word of a table leads to, 0 if it leads to none.
  uint64_t piece_at(Range table, uint64_t slot, uint64_t length) const {
    if (!table.contains(slot) || table.end - slot < heaps::kWord) return 0;
    const abi::Mapping* m = space_.find(slot);
    if (m == nullptr || (m->flags & abi::kAbsent) != 0) return 0;
    uint64_t block = heaps::wrapped(heaps::word(slot) + length);
    return blocks_.is_live(block) && is_as_large(block, length) ? block : 0;
  }

  // Counts the words of the table around this one that lead to pieces, each twice as long.
  unsigned words_around(Range table, uint64_t at, uint64_t length) const {
    unsigned words = 1;
    uint64_t slot = at - heaps::kWord, expected = length / 2;
    for (; piece_at(table, slot, expected) != 0; slot -= heaps::kWord, expected /= 2) ++words;
    slot = at + heaps::kWord, expected = length * 2;
    for (; piece_at(table, slot, expected) != 0; slot += heaps::kWord, expected *= 2) ++words;
    return words;
  }

  const heaps::Space& space_;
  const BlockMap& blocks_;
  const Candidates& candidates_;
  List<Piece> pieces_;  // ascending
  uint64_t hint_count_;
  Scratch<uint64_t> hints_;  // a bit for each: whether a value there may lead to a piece
  uint64_t most_rounding_ = 0;
};

}  // namespace reachscan::sweeper
