// Words that are no pointers into the heap but might stand for one: equal to a pointer but for tags
// in the high bits, one past the end of a block, or a pointer as setjmp() stores it.
#pragma once

#include "arch/x86_64_lanes.hpp"
#include "sweeper/host.hpp"

namespace reachscan::sweeper {

constexpr unsigned kTagBits = 16;

// A cheap test that few words pass, and none fails that is worth a closer look.
class DisguiseFilter {
 public:
  DisguiseFilter(const heaps::Hulls& hulls, uint64_t guard)
      : low_(hulls.low), high_(hulls.high), guard_(guard), wide_(control()->wide_words != 0) {}

  static uint64_t untagged(uint64_t value) { return value << kTagBits >> kTagBits; }

  // glibc xors stack and frame pointers in a jmp_buf with a secret, and rotates them.
  uint64_t unmangled(uint64_t value) const { return (value >> 17 | value << 47) ^ guard_; }

  bool knows_guard() const { return guard_ != 0; }

  bool passes(uint64_t value) const {
    bool odd =
        value % heaps::kGranule == 8 || value % heaps::kPage == 0 || value != untagged(value);
    return is_inside(unmangled(value), 0) || (odd && is_inside(untagged(value), 1));
  }

  // Bit i: the word i of the 64 bytes at `line` passes.
  unsigned passing(uint64_t line) const {
    if (wide_) return passing_lanes(line);
    unsigned bits = 0;
    for (unsigned i = 0; i < 8; ++i)
      bits |= static_cast<unsigned>(passes(heaps::word(line + 8 * i))) << i;
    return bits;
  }

 private:
  // `behind`: how many bytes behind a range still count as inside.
  bool is_inside(uint64_t value, uint64_t behind) const {
    return value - low_.start < low_.end - low_.start + behind ||
           value - high_.start < high_.end - high_.start + behind;
  }

  [[gnu::target(REACHSCAN_WIDE_TARGET)]] unsigned passing_lanes(uint64_t line) const {
    return bits_of_lanes(line) | bits_of_lanes(line + 32) << 4;
  }

  [[REACHSCAN_WIDE]] unsigned bits_of_lanes(uint64_t address) const {
    const arch::Lanes value = arch::load_lanes(address);
    arch::Lanes hidden = (value >> 17 | value << 47) ^ arch::all_lanes(guard_);
    arch::Lanes bare = value & arch::all_lanes(~0ull >> kTagBits);
    arch::Masks odd = ((value & arch::all_lanes(heaps::kGranule - 1)) == arch::all_lanes(8)) |
                      ((value & arch::all_lanes(heaps::kPage - 1)) == arch::all_lanes(0)) |
                      (value != bare);
    return arch::bits_of(are_inside(hidden, 0) | (odd & are_inside(bare, 1)));
  }

  [[REACHSCAN_WIDE]] arch::Masks are_inside(arch::Lanes values, uint64_t behind) const {
    return are_in(low_, values, behind) | are_in(high_, values, behind);
  }

  [[REACHSCAN_WIDE]] static arch::Masks are_in(heaps::Range range, arch::Lanes values,
                                               uint64_t behind) {
    return values - arch::all_lanes(range.start) <
           arch::all_lanes(range.end - range.start + behind);
  }

  heaps::Range low_, high_;
  uint64_t guard_;
  bool wide_;
};

}  // namespace reachscan::sweeper
