// RFC 1951. The next bits of input index a table that tells the symbol and how many of them it
// took.
#include "helper/inflate.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace reachscan::helper {
namespace {

using Bytes = std::vector<unsigned char>;

constexpr std::size_t kUsualBytes = 512 << 10;  // more would be moved as it grows
constexpr unsigned kHeaderBytes = 10;
constexpr unsigned kBlockEnd = 256;
constexpr unsigned kMostLiterals = 288;  // and ends of a block, and lengths of a copy
constexpr unsigned kMostDistances = 32;

class Bits {
 public:
  explicit Bits(const unsigned char* next) : next_(next) {}

  // At most 16. The trailer's eight bytes allow to look beyond the end of the data.
  unsigned peek(unsigned count) {
    if (held_ < count) {
      std::uint32_t more;
      std::memcpy(&more, next_, sizeof more);
      bits_ |= static_cast<std::uint64_t>(more) << held_;
      next_ += sizeof more;
      held_ += 8 * sizeof more;
    }
    return static_cast<unsigned>(bits_) & ((1U << count) - 1);
  }

  void skip(unsigned count) {
    bits_ >>= count;
    held_ -= count;
  }

  unsigned take(unsigned count) {
    unsigned value = peek(count);
    skip(count);
    return value;
  }

  void skip_to_byte() { skip(held_ % 8); }

 private:
  const unsigned char* next_;
  std::uint64_t bits_ = 0;
  unsigned held_ = 0;
};

// A Huffman code.
class Code {
 public:
  // Takes the length of each symbol's code, 0 if it has none.
  Code(const unsigned char* lengths, unsigned count) {
    unsigned counts[16] = {}, next[16] = {};
    for (unsigned symbol = 0; symbol < count; ++symbol) ++counts[lengths[symbol]];
    counts[0] = 0;
    for (unsigned length = 1; length < 16; ++length) {
      next[length] = (next[length - 1] + counts[length - 1]) << 1;
      if (counts[length] != 0) longest_ = length;
    }
    table_.resize(std::size_t{1} << longest_);
    for (unsigned symbol = 0; symbol < count; ++symbol) {
      unsigned length = lengths[symbol];
      if (length == 0) continue;
      for (std::size_t at = reversed(next[length]++, length); at < table_.size();
           at += std::size_t{1} << length)
        table_[at] = static_cast<std::uint16_t>(symbol << 4 | length);
    }
  }

  unsigned read(Bits& bits) const {
    unsigned entry = table_[bits.peek(longest_)];
    bits.skip(entry & 15);
    return entry >> 4;
  }

 private:
  static unsigned reversed(unsigned code, unsigned length) {
    unsigned result = 0;
    for (; length > 0; --length, code >>= 1) result = result << 1 | (code & 1);
    return result;
  }

  unsigned longest_ = 0;
  std::vector<std::uint16_t> table_;
};

struct Codes {
  Code literals;
  Code distances;
};

Codes fixed_codes() {
  unsigned char lengths[kMostLiterals + kMostDistances];
  std::fill(lengths, lengths + 144, 8);
  std::fill(lengths + 144, lengths + 256, 9);
  std::fill(lengths + 256, lengths + 280, 7);
  std::fill(lengths + 280, lengths + kMostLiterals, 8);
  std::fill(lengths + kMostLiterals, std::end(lengths), 5);
  return {{lengths, kMostLiterals}, {lengths + kMostLiterals, kMostDistances}};
}

// The lengths of the codes are coded, too.
Codes own_codes(Bits& bits) {
  constexpr unsigned char kOrder[] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                      11, 4,  12, 3, 13, 2, 14, 1, 15};
  unsigned literals = bits.take(5) + 257, distances = bits.take(5) + 1, count = bits.take(4) + 4;
  unsigned char coded[sizeof kOrder] = {};
  for (unsigned i = 0; i < count; ++i) coded[kOrder[i]] = static_cast<unsigned char>(bits.take(3));
  Code code(coded, sizeof coded);
  Bytes lengths;
  while (lengths.size() < literals + distances) {
    unsigned symbol = code.read(bits);
    if (symbol < 16) {
      lengths.push_back(static_cast<unsigned char>(symbol));
    } else if (symbol == 16) {
      unsigned char last = lengths.back();
      lengths.insert(lengths.end(), 3 + bits.take(2), last);
    } else {
      lengths.insert(lengths.end(), symbol == 17 ? 3 + bits.take(3) : 11 + bits.take(7), 0);
    }
  }
  return {{lengths.data(), literals}, {lengths.data() + literals, distances}};
}

// Symbols stand for ranges that double in width after each `1 << steps` of them; more bits tell the
// number in the range.
unsigned number_of(unsigned symbol, unsigned steps, Bits& bits) {
  if (symbol >> steps < 2) return symbol;
  unsigned extra = (symbol >> steps) - 1;
  unsigned first = (1U << steps) + (symbol & ((1U << steps) - 1));
  return (first << extra) + bits.take(extra);
}

void unpack_block(Bits& bits, const Codes& codes, Bytes& out) {
  for (;;) {
    unsigned symbol = codes.literals.read(bits);
    if (symbol == kBlockEnd) return;
    if (symbol < kBlockEnd) {
      out.push_back(static_cast<unsigned char>(symbol));
      continue;
    }
    symbol -= kBlockEnd + 1;
    unsigned length = symbol == 28 ? 258 : 3 + number_of(symbol, 2, bits);
    unsigned distance = 1 + number_of(codes.distances.read(bits), 1, bits);
    // What is copied may be what was just written.
    for (; length > 0; --length) out.push_back(*(out.end() - distance));
  }
}

void copy_block(Bits& bits, Bytes& out) {
  bits.skip_to_byte();
  unsigned length = bits.take(16);
  bits.take(16);  // its complement
  for (; length > 0; --length) out.push_back(static_cast<unsigned char>(bits.take(8)));
}

}  // namespace

Bytes inflate(const unsigned char* packed) {
  Bits bits(packed + kHeaderBytes);
  Bytes out;
  out.reserve(kUsualBytes);
  for (bool last = false; !last;) {
    last = bits.take(1) != 0;
    switch (bits.take(2)) {
      case 0:
        copy_block(bits, out);
        break;
      case 1:
        unpack_block(bits, fixed_codes(), out);
        break;
      default:
        unpack_block(bits, own_codes(bits), out);
        break;
    }
  }
  return out;
}

}  // namespace reachscan::helper
