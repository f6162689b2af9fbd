// Pointers at unaligned addresses: in packed structures and in byte streams.
#pragma once

#include "sweeper/blob/host.hpp"
#include "sweeper/search/hull_test.hpp"

namespace reachscan::sweeper {

// Finds the bytes where a pointer into one of two ranges may start. Its high bytes identify it:
// zeros, and below them one that selects the part of the address space.
class PackedFilter {
 public:
  explicit PackedFilter(const heaps::Hulls& hulls)
      : hull_({with_top_byte(hulls.low), with_top_byte(hulls.high)}),
        low_(hull_.low()),
        high_(hull_.high()) {}

  bool passes_at(uint64_t address) const { return hull_.contains(heaps::word(address)); }

  // Bit i of bits[k] is set if a pointer may start at byte i of line k, unaligned. Reads seven
  // bytes past the lines.
  void passing(uint64_t at, unsigned lines, uint64_t* bits) const {
    if (hull_.is_wide()) {
      return hull_.are_two() ? passing_bytes<true>(at, lines, bits)
                             : passing_bytes<false>(at, lines, bits);
    }
    for (; lines-- > 0; at += heaps::kLine, ++bits) {
      *bits = 0;
      for (unsigned i = 0; i < heaps::kLine; ++i)
        if (i % heaps::kWord != 0 && passes_at(at + i)) *bits |= 1ull << i;
    }
  }

 private:
  // The highest byte that is not zero in all addresses of a range.
  static unsigned top_byte(heaps::Range range) {
    unsigned place = heaps::kWord - 1;
    while (place > 0 && (range.end - 1) >> 8 * place == 0) --place;
    return place;
  }

  // Leaves out the addresses whose byte there is zero: they look like any other number.
  static heaps::Range with_top_byte(heaps::Range range) {
    uint64_t least = 1ull << 8 * top_byte(range);
    return {range.start < least ? least : range.start, range.end};
  }

  [[REACHSCAN_WIDE]] static arch::ByteMasks is_zero(uint64_t at) {
    return arch::load_bytes(at) == arch::all_bytes(0);
  }

  [[REACHSCAN_WIDE]] static uint64_t bits_of_line(arch::ByteMasks lower, arch::ByteMasks upper) {
    return arch::bits_of_bytes(lower) | uint64_t{arch::bits_of_bytes(upper)} << 32;
  }

  // Which of the bytes of a line, and of seven more, are zero.
  struct Zeros {
    [[REACHSCAN_WIDE]] explicit Zeros(uint64_t at)
        : first(arch::bits_of_bytes(is_zero(at))),
          from_byte_7(bits_of_line(is_zero(at + 7), is_zero(at + 39))) {}

    // Bit i is set if byte i + k, at most 7 bytes further, is zero.
    uint64_t further(unsigned k) const { return from_byte_7 << (7 - k) | (first & 0x7f) >> k; }

    uint64_t first, from_byte_7;
  };

  // The highest byte of addresses in a range, and its possible values.
  struct TopByte {
    explicit TopByte(heaps::Range range)
        : place(top_byte(range)),
          least(static_cast<uint8_t>(range.start >> 8 * place)),
          most(static_cast<uint8_t>((range.end - 1) >> 8 * place)) {}

    // Bit i is set if a pointer may start at byte i.
    [[REACHSCAN_WIDE]] uint64_t start(uint64_t line, const Zeros& zeros) const {
      uint64_t bits = match(line);
      for (unsigned above = place + 1; above < 8; ++above) bits &= zeros.further(above);
      return bits;
    }

    // Bit i is set if the one of a pointer at byte i is among them.
    [[REACHSCAN_WIDE]] uint64_t match(uint64_t line) const {
      return bits_of_line(is_between(line + place), is_between(line + place + 32));
    }

    [[REACHSCAN_WIDE]] arch::ByteMasks is_between(uint64_t at) const {
      return arch::load_bytes(at) - arch::all_bytes(least) <=
             arch::all_bytes(static_cast<uint8_t>(most - least));
    }

    unsigned place;
    uint8_t least, most;
  };

  template <bool kTwo>
  [[gnu::target(REACHSCAN_WIDE_TARGET)]] void passing_bytes(uint64_t at, unsigned lines,
                                                            uint64_t* bits) const {
    constexpr uint64_t kAligned = 0x0101'0101'0101'0101;
    // Local copies, since the compiler must assume that the stores change the members.
    const TopByte low = low_, high = high_;
    for (; lines-- > 0; at += heaps::kLine) {
      const Zeros zeros(at);
      uint64_t starts = low.start(at, zeros);
      if (kTwo) starts |= high.start(at, zeros);
      *bits++ = starts & ~kAligned;
    }
  }

  HullTest hull_;
  TopByte low_, high_;
};

}  // namespace reachscan::sweeper
