// Distances between the samples of a Poisson process.
#pragma once

#include <cstdint>

namespace reachscan::recorder {

// The natural logarithm of a positive number, to about nine digits: there is no C library here.
inline double logarithm(double x) {
  constexpr double kLogarithmOf2 = 0.693147180559945309;
  constexpr std::uint64_t kExponentOf1 = 1023;
  std::uint64_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  auto exponent = static_cast<double>(static_cast<std::int64_t>(bits >> 52) -
                                      static_cast<std::int64_t>(kExponentOf1));
  bits = (bits & ((std::uint64_t{1} << 52) - 1)) | kExponentOf1 << 52;
  double mantissa;  // in [1, 2)
  __builtin_memcpy(&mantissa, &bits, sizeof mantissa);
  double s = (mantissa - 1) / (mantissa + 1), square = s * s, sum = 0;
  for (int k = 17; k > 0; k -= 2) sum = sum * square + 1.0 / k;
  return exponent * kLogarithmOf2 + 2 * s * sum;
}

// xorshift64*; `state` must not be 0.
inline std::uint64_t next_random(std::uint64_t& state) {
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 0x2545'f491'4f6c'dd1d;
}

// Bytes until the next sample: exponentially distributed, at least 1.
inline std::uint64_t next_sample(std::uint64_t& state, std::uint64_t mean) {
  constexpr double kSteps = 9007199254740992.0;  // 2^53
  double uniform = (static_cast<double>(next_random(state) >> 11) + 0.5) / kSteps;
  return static_cast<std::uint64_t>(-logarithm(uniform) * static_cast<double>(mean)) + 1;
}

}  // namespace reachscan::recorder
