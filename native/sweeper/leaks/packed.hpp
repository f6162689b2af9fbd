// Pointers at unaligned addresses: in packed structures and in byte streams.
#pragma once

#include "sweeper/blob/host.hpp"
#include "sweeper/leaks/hull_test.hpp"

namespace reachscan::sweeper {

// Finds the bytes where a pointer into one of two ranges may start. Its high bytes identify it:
// some zeros, and below them one that selects the part of the address space.
class PackedFilter {
 public:
  explicit PackedFilter(const heaps::Hulls& hulls)
      : hull_({unmistakable(hulls.low), unmistakable(hulls.high)}),
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
  // In programs loaded at a fixed address, addresses are as small as other numbers. They would be
  // found by chance, so they are not searched for.
  static heaps::Range unmistakable(heaps::Range range) {
    constexpr uint64_t kNobodys = 1ull << 63, kShort = heaps::kWord == 8 ? 1ull << 32 : 0;
    if (range.start < kShort) range.start = kShort;
    return range.start < range.end ? range : heaps::Range{kNobodys, kNobodys + 1};
  }

  [[REACHSCAN_WIDE]] static arch::ByteMasks is_zero(uint64_t at) {
    return arch::load_bytes(at) == arch::all_bytes(0);
  }

  [[REACHSCAN_WIDE]] static uint64_t bits_of_line(arch::ByteMasks lower, arch::ByteMasks upper) {
    return arch::bits_of_bytes(lower) | uint64_t{arch::bits_of_bytes(upper)} << 32;
  }

  // The highest non-zero byte of addresses in a range, and its possible values.
  struct TopByte {
    explicit TopByte(heaps::Range range) {
      uint64_t last = range.end - 1;
      while (place > 0 && last >> 8 * place == 0) --place;
      least = static_cast<uint8_t>(range.start >> 8 * place);
      most = static_cast<uint8_t>(last >> 8 * place);
    }

    // Bit i is set if the one of a pointer at byte i is among them.
    [[REACHSCAN_WIDE]] uint64_t match(uint64_t line) const {
      return bits_of_line(is_between(line + place), is_between(line + place + 32));
    }

    [[REACHSCAN_WIDE]] arch::ByteMasks is_between(uint64_t at) const {
      return arch::load_bytes(at) - arch::all_bytes(least) <=
             arch::all_bytes(static_cast<uint8_t>(most - least));
    }

    unsigned place = 7;
    uint8_t least, most;
  };

  template <bool kTwo>
  [[gnu::target(REACHSCAN_WIDE_TARGET)]] void passing_bytes(uint64_t at, unsigned lines,
                                                            uint64_t* bits) const {
    constexpr uint64_t kAligned = 0x0101'0101'0101'0101;
    // Local copies, since the compiler must assume that the stores change the members.
    const TopByte low = low_, high = high_;
    for (; lines-- > 0; at += heaps::kLine) {
      uint64_t tops = kTwo ? low.match(at) | high.match(at) : low.match(at);
      uint64_t zeros = bits_of_line(is_zero(at + 7), is_zero(at + 39));
      // The two highest bytes of all addresses, seven and six bytes further, are zero.
      *bits++ = tops & zeros & zeros << 1 & ~kAligned;
    }
  }

  HullTest hull_;
  TopByte low_, high_;
};

}  // namespace reachscan::sweeper
