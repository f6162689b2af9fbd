// Tests whether words are in one of two ranges: one by one, or four at once.
#pragma once

#include "arch/lanes.hpp"
#include "sweeper/blob/host.hpp"

namespace reachscan::sweeper {

using heaps::uint64_t;

class HullTest {
 public:
  explicit HullTest(const heaps::Hulls& hulls)
      : low_(hulls.low),
        high_(hulls.high),
        are_two_(low_.start != high_.start),
        is_wide_(has_wide_words()) {}

  bool are_two() const { return are_two_; }
  // Returns whether four words can be tested at once.
  bool is_wide() const { return is_wide_; }

  // `behind`: how many bytes past the end of a range still count as inside.
  bool contains(uint64_t value, uint64_t behind = 0) const {
    return value - low_.start < low_.end - low_.start + behind ||
           value - high_.start < high_.end - high_.start + behind;
  }

  // kTwo: the value of are_two().
  template <bool kTwo>
  [[REACHSCAN_WIDE]] arch::Masks contain(arch::Lanes values, uint64_t behind = 0) const {
    arch::Masks inside = is_in(low_, values, behind);
    return kTwo ? inside | is_in(high_, values, behind) : inside;
  }

  // Bit i is set if word i of this many lines, at most kLinesAtOnce, passes a filter. The filter
  // tests single words (passes_at) and four at once (bits_of_lanes).
  template <typename Filter>
  uint64_t passing(const Filter& filter, uint64_t at, unsigned lines) const {
    if (is_wide_)
      return are_two_ ? passing_lanes<true>(filter, at, lines)
                      : passing_lanes<false>(filter, at, lines);
    return passing_singly(filter, at, lines);
  }

  // The same, one by one.
  template <typename Filter>
  static uint64_t passing_singly(const Filter& filter, uint64_t at, unsigned lines) {
    uint64_t bits = 0;
    for (unsigned i = 0; i < heaps::kLine / heaps::kWord * lines; ++i)
      bits |= uint64_t{filter.passes_at(at + heaps::kWord * i)} << i;
    return bits;
  }

  const heaps::Range& low() const { return low_; }
  const heaps::Range& high() const { return high_; }

 private:
  template <bool kTwo, typename Filter>
  [[gnu::target(REACHSCAN_WIDE_TARGET)]] static uint64_t passing_lanes(const Filter& filter,
                                                                       uint64_t at,
                                                                       unsigned lines) {
    uint64_t bits = 0;
    for (unsigned i = 0; i < lines; ++i, at += heaps::kLine) {
      unsigned lower = filter.template bits_of_lanes<kTwo>(at);
      unsigned upper = filter.template bits_of_lanes<kTwo>(at + heaps::kLine / 2);
      bits |= uint64_t{lower | upper << 4} << 8 * i;
    }
    return bits;
  }

  [[REACHSCAN_WIDE]] static arch::Masks is_in(heaps::Range range, arch::Lanes values,
                                              uint64_t behind) {
    return arch::are_within(values, range.start, range.end - range.start + behind);
  }

  heaps::Range low_, high_;
  bool are_two_, is_wide_;
};

}  // namespace reachscan::sweeper
