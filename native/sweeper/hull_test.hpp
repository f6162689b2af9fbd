// Whether words lie in one of two ranges: one by one, or four at once.
#pragma once

#include "arch/x86_64_lanes.hpp"
#include "heaps/block_map.hpp"

namespace reachscan::sweeper {

using heaps::uint64_t;

class HullTest {
 public:
  explicit HullTest(const heaps::Hulls& hulls)
      : low_(hulls.low), high_(hulls.high), are_two_(low_.start != high_.start) {}

  bool are_two() const { return are_two_; }

  // `behind`: how many bytes behind a range still count as inside.
  bool contains(uint64_t value, uint64_t behind = 0) const {
    return value - low_.start < low_.end - low_.start + behind ||
           value - high_.start < high_.end - high_.start + behind;
  }

  // kTwo: as are_two() says.
  template <bool kTwo>
  [[REACHSCAN_WIDE]] arch::Masks contain(arch::Lanes values, uint64_t behind = 0) const {
    arch::Masks inside = is_in(low_, values, behind);
    return kTwo ? inside | is_in(high_, values, behind) : inside;
  }

  const heaps::Range& low() const { return low_; }
  const heaps::Range& high() const { return high_; }

 private:
  [[REACHSCAN_WIDE]] static arch::Masks is_in(heaps::Range range, arch::Lanes values,
                                              uint64_t behind) {
    return arch::are_within(values, range.start, range.end - range.start + behind);
  }

  heaps::Range low_, high_;
  bool are_two_;
};

}  // namespace reachscan::sweeper
