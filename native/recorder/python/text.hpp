// Python text, read in place from str objects.
#pragma once

#include <cstddef>
#include <cstdint>

#include "recorder/python/layouts.hpp"

namespace reachscan::recorder {

template <typename Value>
Value value_at(std::uint64_t address) {
  Value value;
  __builtin_memcpy(&value, reinterpret_cast<const void*>(address), sizeof value);
  return value;
}

class PythonText {
 public:
  PythonText(std::uint64_t object, const PythonLayout& layout) {
    constexpr std::uint32_t kCompact = 1 << 5, kAscii = 1 << 6;
    constexpr unsigned kLength = 16, kState = 32, kWidthShift = 2;
    constexpr std::uint64_t kMaxLength = 4096;
    if (object == 0) return;
    auto state = value_at<std::uint32_t>(object + kState);
    auto length = value_at<std::uint64_t>(object + kLength);
    if ((state & kCompact) == 0 || length > kMaxLength) return;
    characters_ = object + ((state & kAscii) != 0 ? layout.text_bytes : layout.wide_text_bytes);
    width_ = state >> kWidthShift & 7;
    length_ = width_ == 1 || width_ == 2 || width_ == 4 ? length : 0;
  }

  // Also empty if it is not understood.
  bool is_empty() const { return length_ == 0; }

  std::uint64_t hash(std::uint64_t seed) const {
    for (std::uint64_t i = 0; i < length_; ++i)
      seed = (seed ^ character(i)) * 0x9e37'79b9'7f4a'7c15 ^ seed >> 29;
    return seed;
  }

  // Writes it as UTF-8. If it does not fit, dots replace its beginning.
  template <std::size_t N>
  void write(char (&out)[N]) const {
    constexpr char kDots[] = "...";
    constexpr std::size_t kDotCount = sizeof kDots - 1;
    std::uint64_t first = length_;
    std::size_t room = N - 1 - kDotCount, used = 0;
    while (first > 0 && used + encoded_bytes(character(first - 1)) <= room)
      used += encoded_bytes(character(--first));
    char* to = out;
    if (first > 0)
      for (std::size_t i = 0; i < kDotCount; ++i) *to++ = kDots[i];
    for (; first < length_; ++first) to = encode(character(first), to);
    *to = 0;
  }

 private:
  std::uint32_t character(std::uint64_t i) const {
    std::uint64_t at = characters_ + i * width_;
    if (width_ == 1) return value_at<std::uint8_t>(at);
    return width_ == 2 ? value_at<std::uint16_t>(at) : value_at<std::uint32_t>(at);
  }

  static std::size_t encoded_bytes(std::uint32_t c) {
    return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  }

  static char* encode(std::uint32_t c, char* to) {
    constexpr unsigned char kLead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    std::size_t bytes = encoded_bytes(c);
    unsigned shift = 6 * (static_cast<unsigned>(bytes) - 1);
    *to++ = static_cast<char>(kLead[bytes] | c >> shift);
    while (shift > 0) *to++ = static_cast<char>(0x80 | (c >> (shift -= 6) & 0x3f));
    return to;
  }

  std::uint64_t characters_ = 0;
  std::uint64_t length_ = 0;
  std::uint32_t width_ = 1;
};

}  // namespace reachscan::recorder
