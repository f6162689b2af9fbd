// The checksum in a block's header, of 16 bits. It is a CRC-32C if the library was built to use the
// processor's instruction for that, else the sum of BSD. Nothing next to the heap says which.
#pragma once

#include <cstdint>

namespace reachscan::heaps::scudo {

// What a byte adds to the checksum of two words, for each place of it in these. A CRC is linear:
// the look-ups do not wait for each other.
struct CrcTable {
  static constexpr int kPlaces = 16;
  std::uint32_t of[kPlaces][256];

  // What a word adds whose first byte has this place.
  constexpr std::uint32_t of_word(std::uint64_t word, int place) const {
    std::uint32_t sum = 0;
    for (int byte = 0; byte < 8; ++byte) sum ^= of[place + byte][word >> 8 * byte & 255];
    return sum;
  }
};

constexpr CrcTable make_crc_table() {
  constexpr std::uint32_t kPolynomial = 0x82f63b78;
  CrcTable table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int place = CrcTable::kPlaces - 1; place >= 0; --place) {
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? kPolynomial : 0);
      table.of[place][byte] = crc;
    }
  }
  return table;
}

inline constexpr CrcTable kCrcTable = make_crc_table();

constexpr std::uint16_t add_to_sum(std::uint16_t sum, std::uint64_t word) {
  for (int byte = 0; byte < 8; ++byte, word >>= 8)
    sum = static_cast<std::uint16_t>((sum >> 1 | sum << 15) + (word & 255));
  return sum;
}

// Checks headers. All must have the same kind of checksum, which the first ones tell.
class Checksums {
 public:
  explicit Checksums(std::uint32_t cookie) : cookie_(cookie) {}

  // Returns whether the header is intact of the block at this address.
  bool accept(std::uint64_t block, std::uint64_t header) {
    auto stored = static_cast<std::uint16_t>(header >> 48);
    std::uint64_t rest = header << 16 >> 16;
    may_be_crc_ = may_be_crc_ && crc(block, rest) == stored;
    may_be_sum_ = may_be_sum_ && sum(block, rest) == stored;
    return may_be_crc_ || may_be_sum_;
  }

  // Most bytes of an address and of a header are those of the block before.
  std::uint16_t crc(std::uint64_t block, std::uint64_t rest) {
    if ((block & ~kLower) != upper_) sum_upper(block & ~kLower);
    if ((rest & ~kSmallSize) != class_) sum_class(rest & ~kSmallSize);
    std::uint32_t crc = upper_crc_ ^ class_crc_;
    crc ^= kCrcTable.of[0][block & 255] ^ kCrcTable.of[1][block >> 8 & 255];
    crc ^= kCrcTable.of[9][rest >> 8 & 255] ^ kCrcTable.of[10][rest >> 16 & 255];
    return static_cast<std::uint16_t>(crc ^ crc >> 16);
  }

  std::uint16_t sum(std::uint64_t block, std::uint64_t rest) const {
    return add_to_sum(add_to_sum(static_cast<std::uint16_t>(cookie_), block), rest);
  }

 private:
  static constexpr std::uint64_t kLower = 0xffff;
  static constexpr std::uint64_t kSmallSize = 0xffff00;  // of a header: the state, and a size

  [[gnu::noinline]] void sum_upper(std::uint64_t upper) {
    upper_ = upper;
    upper_crc_ = kCrcTable.of_word(upper ^ cookie_, 0);
  }

  [[gnu::noinline]] void sum_class(std::uint64_t rest) {
    class_ = rest;
    class_crc_ = kCrcTable.of_word(rest, 8);
  }

  std::uint32_t cookie_;
  std::uint64_t upper_ = ~0ull;  // of the address of the last block
  std::uint32_t upper_crc_ = 0;  // with the cookie
  std::uint64_t class_ = ~0ull;  // of the header of the last block, and how much later that is
  std::uint32_t class_crc_ = 0;
  bool may_be_crc_ = true, may_be_sum_ = true;
};

}  // namespace reachscan::heaps::scudo
