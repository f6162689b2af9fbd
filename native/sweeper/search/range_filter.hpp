// Filters for each_word_that(): words in one or two ranges, odd words there, or words that lead to
// their own neighbourhood.
#pragma once

#include "sweeper/search/hull_test.hpp"

namespace reachscan::sweeper {

class RangeFilter {
 public:
  explicit RangeFilter(heaps::Range range) : RangeFilter(heaps::Hulls{range, range}) {}
  explicit RangeFilter(const heaps::Hulls& hulls) : hull_(hulls) {}

  bool passes_at(uint64_t address) const { return hull_.contains(heaps::word(address)); }

  // Bit i is set if word i of this many lines is in a range.
  uint64_t passing(uint64_t at, unsigned lines) const { return hull_.passing(*this, at, lines); }

  // The same for the four words from `address` on.
  template <bool kTwo>
  [[REACHSCAN_WIDE]] unsigned bits_of_lanes(uint64_t address) const {
    return arch::bits_of(hull_.contain<kTwo>(arch::load_lanes(address)));
  }

 private:
  HullTest hull_;
};

class OddFilter {
 public:
  explicit OddFilter(const heaps::Hulls& hulls) : hull_(hulls) {}

  bool passes_at(uint64_t address) const {
    uint64_t value = heaps::word(address);
    return value % heaps::kWord != 0 && hull_.contains(value);
  }

  uint64_t passing(uint64_t at, unsigned lines) const { return hull_.passing(*this, at, lines); }

  template <bool kTwo>
  [[REACHSCAN_WIDE]] unsigned bits_of_lanes(uint64_t address) const {
    const arch::Lanes value = arch::load_lanes(address);
    arch::Masks odd = (value & arch::all_lanes(7)) != arch::all_lanes(0);
    return arch::bits_of(odd & hull_.contain<kTwo>(value));
  }

 private:
  HullTest hull_;
};

// Words that are addresses, `distance` bytes after their own.
class SelfFilter {
 public:
  SelfFilter(const heaps::Hulls& hulls, uint64_t distance) : hull_(hulls), distance_(distance) {}

  bool passes_at(uint64_t address) const { return heaps::word(address) - address == distance_; }

  uint64_t passing(uint64_t at, unsigned lines) const { return hull_.passing(*this, at, lines); }

  template <bool kTwo>
  [[REACHSCAN_WIDE]] unsigned bits_of_lanes(uint64_t address) const {
    const arch::Lanes own = arch::all_lanes(address + distance_) + arch::Lanes{0, 8, 16, 24};
    return arch::bits_of(arch::load_lanes(address) == own);
  }

 private:
  HullTest hull_;
  uint64_t distance_;
};

}  // namespace reachscan::sweeper
