// Tells which words lie in a range, for each_word_that().
#pragma once

#include "sweeper/blob/host.hpp"
#include "sweeper/leaks/hull_test.hpp"

namespace reachscan::sweeper {

class RangeFilter {
 public:
  explicit RangeFilter(heaps::Range range)
      : hull_({range, range}), wide_(control()->wide_words != 0) {}

  bool passes_at(uint64_t address) const { return hull_.contains(heaps::word(address)); }

  // Bit i: the word i of so many lines, eight at most, is in the range.
  uint64_t passing(uint64_t at, unsigned lines) const {
    if (wide_) return passing_lanes(at, lines);
    uint64_t bits = 0;
    for (unsigned i = 0; i < 8 * lines; ++i) bits |= uint64_t{passes_at(at + 8 * i)} << i;
    return bits;
  }

 private:
  [[gnu::target(REACHSCAN_WIDE_TARGET)]] uint64_t passing_lanes(uint64_t at, unsigned lines) const {
    uint64_t bits = 0;
    for (unsigned i = 0; i < 2 * lines; ++i) {
      const arch::Lanes words = arch::load_lanes(at + 32 * i);
      bits |= uint64_t{arch::bits_of(hull_.contain<false>(words))} << 4 * i;
    }
    return bits;
  }

  HullTest hull_;
  bool wide_;
};

}  // namespace reachscan::sweeper
