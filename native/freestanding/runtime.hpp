// The functions that the compiler may call in freestanding code. No other part of a C library
// exists.
#pragma once

#include <cstddef>

#include "arch/instructions.hpp"

extern "C" {

inline __attribute__((used)) void* memset(void* target, int value, std::size_t length) {
  reachscan::arch::fill(target, value, length);
  return target;
}

inline __attribute__((used)) void* memcpy(void* target, const void* source, std::size_t length) {
  reachscan::arch::copy_upwards(target, source, length);
  return target;
}

inline __attribute__((used)) void* memmove(void* target, const void* source, std::size_t length) {
  auto* to = static_cast<unsigned char*>(target);
  const auto* from = static_cast<const unsigned char*>(source);
  if (to <= from || to >= from + length) return memcpy(target, source, length);
  while (length-- > 0) to[length] = from[length];
  return target;
}

inline __attribute__((used)) int memcmp(const void* left, const void* right, std::size_t length) {
  const auto* a = static_cast<const unsigned char*>(left);
  const auto* b = static_cast<const unsigned char*>(right);
  for (std::size_t i = 0; i < length; ++i)
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  return 0;
}

}  // extern "C"
