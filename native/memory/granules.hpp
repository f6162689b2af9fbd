// The granules of small grey blocks that may hold pointers, found for several spans at once.
//
// Marking reads these granules only, where it is known which others are blank (blanks.hpp). How
// many blocks are grey in a span and how many of their granules are not blank cannot be predicted.
// So there are no branches on that: a mispredicted one takes as long as all else here.
#pragma once

#include "memory/cluster.hpp"
#include "memory/leftover.hpp"

namespace reachscan::heaps {

// A granule to scan: its address, and in the low bits how.
//
//   kElsewhere   its words do not come from the head of a block (leftover.hpp)
//   kIsLast      the second word is not part of the block (common form)
using Granule = uint64_t;
constexpr uint64_t kIsLast = kWord;

constexpr unsigned kSpansAtOnce = 16;

// Bits for the granules of two neighbouring spans.
struct TwoSpans {
  uint64_t low, high;

  TwoSpans behind(unsigned granules) const {
    return {low >> granules | high << (64 - granules), high >> granules};
  }
  TwoSpans ahead(unsigned granules) const {
    return {low << granules, high << granules | low >> (64 - granules)};
  }
  friend TwoSpans operator|(TwoSpans a, TwoSpans b) { return {a.low | b.low, a.high | b.high}; }
  friend TwoSpans operator&(TwoSpans a, TwoSpans b) { return {a.low & b.low, a.high & b.high}; }
  friend TwoSpans operator^(TwoSpans a, TwoSpans b) { return {a.low ^ b.low, a.high ^ b.high}; }
  friend TwoSpans operator+(TwoSpans a, TwoSpans b) {
    const uint64_t low = a.low + b.low;
    return {low, a.high + b.high + (low < a.low)};
  }
  TwoSpans operator~() const { return {~low, ~high}; }
};

// Returns those of `blocks` in the first of two spans that take at most 128 bytes. `edges`: starts
// and boundaries.
inline uint64_t small_of(uint64_t blocks, TwoSpans edges) {
  TwoSpans before = edges.behind(1);
  before = before | before.behind(1);
  before = before | before.behind(2);
  before = before | before.behind(4);
  if (kFine) before = before | before.behind(8);
  return blocks & before.low;
}

// The granules of some spans.
class GranuleBits {
 public:
  // Adds those of small blocks, in the first of two spans from `base` on, that are not blank.
  void add(uint64_t base, uint64_t blocks, TwoSpans edges, TwoSpans blank) {
    // Adding the first one to a run of ones clears it and sets the bit behind.
    const TwoSpans starts{blocks, 0}, inner = ~edges;
    const TwoSpans filled = starts | (inner & (inner ^ (inner + (starts.ahead(1) & inner))));
    TwoSpans heads = starts | starts.ahead(1);
    if (kFine) heads = heads | heads.ahead(2);
    static_assert(kHeadBytes == (kFine ? 4 : 2) * kGranule || kWord != 8);
    const TwoSpans left = filled & ~blank, ends = edges.behind(1);
    add(base, left.low, heads.low, ends.low);
    add(base + kSpan, left.high, heads.high, ends.high);
  }

  // Calls visit(granule) for each. May be called once.
  template <typename Visit>
  [[gnu::always_inline]] void visit_all(Visit visit) {
    for (unsigned i = 0; i < count_;) {
      Span& span = spans_[i];
      auto bit = static_cast<unsigned>(__builtin_ctzll(span.left));
      uint64_t how = ((span.heads >> bit & 1) - 1) & kElsewhere;
      if (!kFine) how |= (span.ends >> bit & 1) * kIsLast;
      visit(span.base + bit * kGranule + how);
      span.left &= span.left - 1;
      i += span.left == 0;
    }
  }

 private:
  struct Span {
    uint64_t base, left, heads, ends;  // `ends`: of blocks
  };

  void add(uint64_t base, uint64_t left, uint64_t heads, uint64_t ends) {
    spans_[count_] = {base, left, heads, ends};
    count_ += left != 0;
  }

  unsigned count_ = 0;
  Span spans_[2 * (kSpansAtOnce + 1) + 1];
};

}  // namespace reachscan::heaps
