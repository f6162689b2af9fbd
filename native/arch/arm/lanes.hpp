// Four words at once. Vectors of this processor hold two, and it has no instruction that turns a
// mask into bits. Nobody has yet measured whether they would be faster than single words, so the
// helper does not set `wide_words`.
#pragma once

#include <cstdint>

namespace reachscan::arch {

#define REACHSCAN_WIDE_TARGET "+simd"
#define REACHSCAN_WIDE gnu::always_inline

inline bool has_lanes() { return false; }

using Lanes = unsigned long long __attribute__((vector_size(32), may_alias, aligned(8)));
using Masks = long long __attribute__((vector_size(32)));  // what a comparison of Lanes is

[[REACHSCAN_WIDE]] inline Lanes load_lanes(std::uint64_t address) {
  return *reinterpret_cast<const Lanes*>(address);
}

[[REACHSCAN_WIDE]] inline Lanes all_lanes(std::uint64_t value) {
  return Lanes{value, value, value, value};
}

// Whether start <= value < start + length, for each lane.
[[REACHSCAN_WIDE]] inline Masks are_within(Lanes values, std::uint64_t start,
                                           std::uint64_t length) {
  return values - all_lanes(start) < all_lanes(length);
}

// Bit i is set if lane i is all ones.
[[REACHSCAN_WIDE]] inline unsigned bits_of(Masks masks) {
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 4; ++lane) bits |= (masks[lane] != 0 ? 1u : 0u) << lane;
  return bits;
}

// Parts of eight words, 32 bits each.
using Parts = unsigned __attribute__((vector_size(32)));
using PartMasks = int __attribute__((vector_size(32)));
struct SplitWords {
  Parts upper;   // from bit 32
  Parts middle;  // from bit 16
  Parts lower;
};

[[REACHSCAN_WIDE]] inline SplitWords load_split(std::uint64_t address) {
  SplitWords split;
  for (unsigned word = 0; word < 8; ++word) {
    unsigned long long value = load_lanes(address + word / 4 * 32)[word % 4];
    split.upper[word] = static_cast<unsigned>(value >> 32);
    split.middle[word] = static_cast<unsigned>(value >> 16);
    split.lower[word] = static_cast<unsigned>(value);
  }
  return split;
}

[[REACHSCAN_WIDE]] inline Parts all_parts(std::uint32_t value) { return Parts{} + value; }

// Whether start <= value < start + length, for each part.
[[REACHSCAN_WIDE]] inline PartMasks parts_within(Parts values, std::uint32_t start,
                                                 std::uint32_t length) {
  return values - all_parts(start) < all_parts(length);
}

// Bit i is set if the mask of word i is all ones.
[[REACHSCAN_WIDE]] inline unsigned bits_of_parts(PartMasks masks) {
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 8; ++lane) bits |= (masks[lane] != 0 ? 1u : 0u) << lane;
  return bits;
}

// Single bytes, 32 at once.
using Bytes = unsigned char __attribute__((vector_size(32), may_alias, aligned(1)));
using ByteMasks = signed char __attribute__((vector_size(32)));

[[REACHSCAN_WIDE]] inline Bytes load_bytes(std::uint64_t address) {
  return *reinterpret_cast<const Bytes*>(address);
}

[[REACHSCAN_WIDE]] inline Bytes all_bytes(unsigned char value) { return Bytes{} + value; }

// Bit i is set if byte i is all ones.
[[REACHSCAN_WIDE]] inline std::uint32_t bits_of_bytes(ByteMasks masks) {
  std::uint32_t bits = 0;
  for (unsigned lane = 0; lane < 32; ++lane) bits |= (masks[lane] != 0 ? 1u : 0u) << lane;
  return bits;
}

// Stores the lanes whose bits are set, packed. Overwrites up to four lanes at `to` in all. Returns
// the end of what was stored.
[[REACHSCAN_WIDE]] inline std::uint64_t* pack_lanes(Lanes lanes, unsigned bits, std::uint64_t* to) {
  for (unsigned lane = 0; lane < 4; ++lane) {
    *to = lanes[lane];
    to += bits >> lane & 1;
  }
  return to;
}

}  // namespace reachscan::arch
