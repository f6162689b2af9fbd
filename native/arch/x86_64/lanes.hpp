// Four words at once, 32 bits of eight words, or 32 bytes, with AVX2. The helper checks for it
// before it sets `wide_words`.
#pragma once

#include <cpuid.h>

#include <cstdint>

namespace reachscan::arch {

#define REACHSCAN_WIDE_TARGET "avx2,bmi,popcnt"
#define REACHSCAN_WIDE gnu::target(REACHSCAN_WIDE_TARGET), gnu::always_inline

// By its own instructions: __builtin_cpu_supports() denies everything where the compiler's library
// has no constructor that asks the processor.
inline bool has_lanes() {
  constexpr unsigned kKnown = bit_OSXSAVE | bit_AVX | bit_POPCNT, kExtended = bit_AVX2 | bit_BMI;
  constexpr unsigned kSaved = 6;  // of the state that the kernel saves for threads: XMM and YMM
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & kKnown) != kKnown) return false;
  unsigned saved, upper;
  asm volatile("xgetbv" : "=a"(saved), "=d"(upper) : "c"(0));
  if ((saved & kSaved) != kSaved) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & kExtended) == kExtended;
}

using Lanes = unsigned long long __attribute__((vector_size(32), may_alias, aligned(8)));
using Masks = long long __attribute__((vector_size(32)));  // what a comparison of Lanes is

[[REACHSCAN_WIDE]] inline Lanes load_lanes(std::uint64_t address) {
  return *reinterpret_cast<const Lanes*>(address);
}

[[REACHSCAN_WIDE]] inline Lanes all_lanes(std::uint64_t value) {
  return Lanes{value, value, value, value};
}

// Whether start <= value < start + length, for each lane. The processor compares signed numbers
// only, so both sides are offset by 2^63.
[[REACHSCAN_WIDE]] inline Masks are_within(Lanes values, std::uint64_t start,
                                           std::uint64_t length) {
  constexpr std::uint64_t kHalf = 1ull << 63;
  return reinterpret_cast<Masks>(values - all_lanes(start + kHalf)) <
         reinterpret_cast<Masks>(all_lanes(length + kHalf));
}

// Bit i is set if lane i is all ones.
[[REACHSCAN_WIDE]] inline unsigned bits_of(Masks masks) {
  using Doubles = double __attribute__((vector_size(32)));
  return static_cast<unsigned>(__builtin_ia32_movmskpd256(reinterpret_cast<Doubles>(masks)));
}

// Parts of eight words, 32 bits each, in an order that bits_of_parts() undoes.
using Parts = unsigned __attribute__((vector_size(32)));
using PartMasks = int __attribute__((vector_size(32)));
struct SplitWords {
  Parts upper;   // from bit 32
  Parts middle;  // from bit 16
  Parts lower;
};

[[REACHSCAN_WIDE]] inline SplitWords load_split(std::uint64_t address) {
  using Floats = float __attribute__((vector_size(32)));
  const Lanes first = load_lanes(address), second = load_lanes(address + 32);
  const auto a = reinterpret_cast<Floats>(first), b = reinterpret_cast<Floats>(second);
  const auto c = reinterpret_cast<Floats>(first >> 16), d = reinterpret_cast<Floats>(second >> 16);
  constexpr int kUpper = 0b11'01'11'01, kLower = 0b10'00'10'00;
  return {reinterpret_cast<Parts>(__builtin_ia32_shufps256(a, b, kUpper)),
          reinterpret_cast<Parts>(__builtin_ia32_shufps256(c, d, kLower)),
          reinterpret_cast<Parts>(__builtin_ia32_shufps256(a, b, kLower))};
}

[[REACHSCAN_WIDE]] inline Parts all_parts(std::uint32_t value) { return Parts{} + value; }

// Whether start <= value < start + length, for each part; `length` is at most 2^31.
[[REACHSCAN_WIDE]] inline PartMasks parts_within(Parts values, std::uint32_t start,
                                                 std::uint32_t length) {
  constexpr std::uint32_t kHalf = 1u << 31;
  return reinterpret_cast<PartMasks>(values - all_parts(start + kHalf)) <
         reinterpret_cast<PartMasks>(all_parts(length + kHalf));
}

// Bit i is set if the mask of word i is all ones.
[[REACHSCAN_WIDE]] inline unsigned bits_of_parts(PartMasks masks) {
  using Quads = long long __attribute__((vector_size(32)));
  using Floats = float __attribute__((vector_size(32)));
  const Quads in_order = __builtin_ia32_permdi256(reinterpret_cast<Quads>(masks), 0b11'01'10'00);
  return static_cast<unsigned>(__builtin_ia32_movmskps256(reinterpret_cast<Floats>(in_order)));
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
  using Chars = char __attribute__((vector_size(32)));
  return static_cast<std::uint32_t>(__builtin_ia32_pmovmskb256(reinterpret_cast<Chars>(masks)));
}

// Stores the lanes whose bits are set, packed. Overwrites up to four lanes at `to` in all. Returns
// the end of what was stored.
[[REACHSCAN_WIDE]] inline std::uint64_t* pack_lanes(Lanes lanes, unsigned bits, std::uint64_t* to) {
  // The processor permutes only 32-bit halves of lanes freely.
  using Halves = int __attribute__((vector_size(32), may_alias));
  struct Orders {
    alignas(32) int of[16][8];
  };
  static constexpr Orders kOrders = [] {
    Orders orders{};
    for (int set = 0; set < 16; ++set) {
      int next = 0;
      for (int lane = 0; lane < 4; ++lane) {
        if ((set >> lane & 1) == 0) continue;
        orders.of[set][next++] = 2 * lane;
        orders.of[set][next++] = 2 * lane + 1;
      }
    }
    return orders;
  }();
  Halves packed = __builtin_ia32_permvarsi256(reinterpret_cast<Halves>(lanes),
                                              *reinterpret_cast<const Halves*>(kOrders.of[bits]));
  *reinterpret_cast<Lanes*>(to) = reinterpret_cast<Lanes>(packed);
  return to + __builtin_popcount(bits);
}

}  // namespace reachscan::arch
