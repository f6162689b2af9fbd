// Addresses that CPython stores as integers: objects with digits of 30 bits (or 15, depending on
// the build), the lowest first.
#pragma once

#include "memory/space.hpp"
#include "sweeper/python/types.hpp"

namespace reachscan::sweeper {

using heaps::uint16_t;
using heaps::uint32_t;
using heaps::uint64_t;

struct PythonInt {
  static constexpr uint64_t kHeader = 24;  // ob_refcnt, ob_type, ob_size (since 3.12: lv_tag)
  static constexpr unsigned kWideDigit = 30, kNarrowDigit = 15;
  // Fields of a type object.
  static constexpr uint64_t kItemSize = 40, kKnownBytes = kTypeFlags + 8;
  static constexpr uint64_t kLongSubclass = 1 << 24;
  // The word before the digits holds their number; since 3.12 shifted left, above the sign.
  static constexpr unsigned kTagBits = 3;
  static constexpr uint64_t kMaxDigits = 4;

  // Returns the size of a digit in bytes if this is the type of integers, else 0. The type of types
  // is its own type, which does not occur by chance.
  static uint64_t digit_size(const heaps::Space& space, uint64_t type) {
    if (type % 8 != 0 || !space.readable(type, kKnownBytes)) return 0;
    uint64_t meta = heaps::word(type + 8);
    if (meta % 8 != 0 || !space.readable(meta, 16) || heaps::word(meta + 8) != meta) return 0;
    if ((heaps::word(type + kTypeFlags) & kLongSubclass) == 0) return 0;
    uint64_t size = heaps::word(type + kItemSize);
    return size == sizeof(uint32_t) || size == sizeof(uint16_t) ? size : 0;
  }

  static uint64_t count_digits(uint64_t size_or_tag) {
    uint64_t count = size_or_tag > kMaxDigits ? size_or_tag >> kTagBits : size_or_tag;
    bool is_whole = size_or_tag <= kMaxDigits || size_or_tag % (1 << kTagBits) == 0;
    return is_whole && count <= kMaxDigits ? count : 0;
  }
};

// Returns the positive number whose object has its digits at `digits`, the address of a readable
// word; 0 if there is none, or if it has more digits than an address. In a freed object the first
// word is a link.
inline uint64_t python_int_at(const heaps::Space& space, uint64_t digits) {
  if (heaps::kWord != 8) return 0;  // the layout differs there
  uint64_t object = digits - PythonInt::kHeader;
  // Most objects are on the page of their digits.
  bool on_one_page = digits % heaps::kPage >= PythonInt::kHeader;
  if (!on_one_page && !space.readable(object, PythonInt::kHeader)) return 0;
  uint64_t count = PythonInt::count_digits(heaps::word(digits - 8));
  uint64_t references = heaps::word(object);
  if (count == 0 || references == 0 || references >> 32 != 0) return 0;
  uint64_t size = PythonInt::digit_size(space, heaps::word(object + 8));
  if (size == 0 || !space.readable(digits, count * size)) return 0;
  bool wide = size == sizeof(uint32_t);
  unsigned bits = wide ? PythonInt::kWideDigit : PythonInt::kNarrowDigit;
  uint64_t value = 0;
  while (count-- > 0) {
    uint64_t at = digits + count * size;
    uint64_t digit = wide ? heaps::load<uint32_t>(at) : heaps::load<uint16_t>(at);
    if (value >> (64 - bits) != 0) return 0;
    value = value << bits | digit;
  }
  return value;
}

}  // namespace reachscan::sweeper
