// Four words at once. Needs AVX2, for which the helper looks before it says `wide_words`.
#pragma once

#include <cstdint>

namespace reachscan::arch {

#define REACHSCAN_WIDE gnu::target("avx2,bmi"), gnu::always_inline

using Lanes = unsigned long long __attribute__((vector_size(32), may_alias, aligned(8)));
using Masks = long long __attribute__((vector_size(32)));  // what a comparison of Lanes is

[[REACHSCAN_WIDE]] inline Lanes load_lanes(std::uint64_t address) {
  return *reinterpret_cast<const Lanes*>(address);
}

[[REACHSCAN_WIDE]] inline Lanes all_lanes(std::uint64_t value) {
  return Lanes{value, value, value, value};
}

// Bit i: lane i is all ones.
[[REACHSCAN_WIDE]] inline unsigned bits_of(Masks masks) {
  using Doubles = double __attribute__((vector_size(32)));
  return static_cast<unsigned>(__builtin_ia32_movmskpd256(reinterpret_cast<Doubles>(masks)));
}

}  // namespace reachscan::arch
