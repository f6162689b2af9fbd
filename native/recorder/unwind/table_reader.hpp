// Reads the numbers of unwind tables (DWARF 5 section 7.6, LSB on .eh_frame).
#pragma once

#include <cstdint>

namespace reachscan::recorder {

class TableReader {
 public:
  TableReader(std::uint64_t at, std::uint64_t end) : at_(at), end_(end) {}

  std::uint64_t at() const { return at_; }
  bool is_at_end() const { return at_ >= end_; }
  // Returns whether a read went past the end, which returned zeros.
  bool overran() const { return overran_; }

  template <typename Number>
  Number number() {
    Number value{};
    if (at_ > end_ || sizeof value > end_ - at_) {
      overran_ = true;
      at_ = end_;
      return value;
    }
    __builtin_memcpy(&value, reinterpret_cast<const void*>(at_), sizeof value);
    at_ += sizeof value;
    return value;
  }

  std::uint64_t unsigned_leb() {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      auto byte = number<std::uint8_t>();
      if (shift < 64) value |= std::uint64_t{byte & 0x7fu} << shift;
      if ((byte & 0x80) == 0) return value;
    }
  }

  std::int64_t signed_leb() {
    std::uint64_t value = 0;
    for (unsigned shift = 0;;) {
      auto byte = number<std::uint8_t>();
      if (shift < 64) value |= std::uint64_t{byte & 0x7fu} << shift;
      shift += 7;
      if ((byte & 0x80) != 0) continue;
      if (shift < 64 && (byte & 0x40) != 0) value |= ~std::uint64_t{0} << shift;
      return static_cast<std::int64_t>(value);
    }
  }

  void skip(std::uint64_t bytes) {
    if (at_ > end_ || bytes > end_ - at_) {
      overran_ = true;
      at_ = end_;
    } else {
      at_ += bytes;
    }
  }

  // Reads a pointer in one of the encodings of .eh_frame; `data_base` is the base of data-relative
  // ones. An unknown encoding sets overran().
  std::uint64_t pointer(std::uint8_t encoding, std::uint64_t data_base = 0) {
    constexpr std::uint8_t kOmitted = 0xff;
    if (encoding == kOmitted) return 0;
    std::uint64_t place = at_;
    std::uint64_t value = raw(encoding & 0x0f);
    if (value == 0) return 0;
    switch (encoding & 0x70) {
      case 0x00:
        return value;
      case 0x10:
        return value + place;
      case 0x30:
        return value + data_base;
      default:
        overran_ = true;
        return 0;
    }
  }

 private:
  std::uint64_t raw(std::uint8_t format) {
    switch (format) {
      case 0x00:
      case 0x04:
      case 0x0c:
        return number<std::uint64_t>();
      case 0x01:
        return unsigned_leb();
      case 0x02:
        return number<std::uint16_t>();
      case 0x03:
        return number<std::uint32_t>();
      case 0x09:
        return static_cast<std::uint64_t>(signed_leb());
      case 0x0a:
        return static_cast<std::uint64_t>(std::int64_t{number<std::int16_t>()});
      case 0x0b:
        return static_cast<std::uint64_t>(std::int64_t{number<std::int32_t>()});
      default:
        overran_ = true;
        return 0;
    }
  }

  std::uint64_t at_;
  std::uint64_t end_;
  bool overran_ = false;
};

}  // namespace reachscan::recorder
