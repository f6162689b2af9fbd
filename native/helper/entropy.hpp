// The two codes of Zstandard (RFC 8878, section 4): FSE, whose symbols may take a fraction of a
// bit, and Huffman's.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace reachscan::helper {

using Bytes = std::vector<unsigned char>;

// Numbers of a few bytes, the lowest first.
template <typename Number>
Number number_at(const unsigned char* bytes) {
  Number number;
  std::memcpy(&number, bytes, sizeof number);
  return number;
}

// Bits are read from the end to the start, each number's highest bit first. The highest set bit of
// the last byte marks the end.
class Bits {
 public:
  Bits(const unsigned char* start, std::size_t bytes)
      : start_(start),
        left_(static_cast<long>(8 * bytes) - 1 - std::countl_zero(start[bytes - 1])) {}

  // At most 32 of them. Beyond the start there are zeros.
  std::uint32_t peek(unsigned count) const {
    long at = left_ - static_cast<long>(count);
    auto more = number_at<std::uint64_t>(start_ + (at > 0 ? at / 8 : 0));
    more = at >= 0 ? more >> at % 8 : at > -64 ? more << -at : 0;
    return static_cast<std::uint32_t>(more & ((std::uint64_t{1} << count) - 1));
  }
  void skip(unsigned count) { left_ -= count; }
  std::uint32_t take(unsigned count) {
    std::uint32_t value = peek(count);
    skip(count);
    return value;
  }
  bool beyond_start() const { return left_ < 0; }

 private:
  const unsigned char* start_;
  long left_;
};

class Fse {
 public:
  Fse() = default;

  // Always the same symbol.
  explicit Fse(unsigned char symbol) : states_{{symbol, 0, 0}} {}

  // Of `1 << accuracy` states each symbol has as many as the table tells; -1 is one that is rarer.
  Fse(unsigned accuracy, const std::vector<int>& counts)
      : accuracy_(accuracy), states_(std::size_t{1} << accuracy) {
    const unsigned size = 1U << accuracy, step = (size >> 1) + (size >> 3) + 3;
    unsigned end = size, at = 0;
    std::vector<unsigned> next(counts.size());
    for (std::size_t symbol = 0; symbol < counts.size(); ++symbol) {
      next[symbol] = counts[symbol] < 0 ? 1 : static_cast<unsigned>(counts[symbol]);
      if (counts[symbol] < 0) states_[--end].symbol = static_cast<unsigned char>(symbol);
    }
    for (std::size_t symbol = 0; symbol < counts.size(); ++symbol)
      for (int i = 0; i < counts[symbol]; ++i) {
        states_[at].symbol = static_cast<unsigned char>(symbol);
        do at = (at + step) % size;
        while (at >= end);
      }
    for (State& state : states_) {
      unsigned number = next[state.symbol]++;
      state.bits = static_cast<unsigned char>(accuracy + 1 - std::bit_width(number));
      state.next = static_cast<std::uint16_t>((number << state.bits) - size);
    }
  }

  // Reads the counts, and leaves `at` behind them.
  static Fse read(const unsigned char*& at) {
    unsigned taken = 4;
    const unsigned accuracy = (at[0] & 15U) + 5;
    auto peek = [&](unsigned bits) {
      return number_at<std::uint32_t>(at + taken / 8) >> taken % 8 & ((1U << bits) - 1);
    };
    std::vector<int> counts;
    for (unsigned left = 1U << accuracy; left > 0;) {
      // As many values as there may be; the lower of them take one bit less.
      unsigned bits = static_cast<unsigned>(std::bit_width(left + 1)), low = (1U << (bits - 1)) - 1;
      unsigned value = peek(bits), short_ones = (1U << bits) - 2 - left;
      bool is_short = (value & low) < short_ones;
      if (is_short) value &= low;
      if (!is_short && value > low) value -= short_ones;
      taken += bits - is_short;
      counts.push_back(static_cast<int>(value) - 1);
      left -= value == 0 ? 1 : value - 1;
      for (unsigned zeros = value == 1 ? 3 : 0; zeros == 3;) {
        zeros = peek(2);
        taken += 2;
        counts.insert(counts.end(), zeros, 0);
      }
    }
    at += (taken + 7) / 8;
    return {accuracy, counts};
  }

  unsigned first(Bits& bits) const { return bits.take(accuracy_); }
  unsigned symbol(unsigned state) const { return states_[state].symbol; }
  unsigned next(unsigned state, Bits& bits) const {
    return states_[state].next + bits.take(states_[state].bits);
  }

 private:
  struct State {
    unsigned char symbol, bits;  // to read for the next one
    std::uint16_t next;
  };

  unsigned accuracy_ = 0;
  std::vector<State> states_;
};

class Huffman {
 public:
  // Reads the lengths of the codes, and leaves `at` behind them.
  static Huffman read(const unsigned char*& at) {
    const unsigned header = *at++;
    Bytes weights;
    if (header < 128) {
      const unsigned char* end = at + header;
      weights = packed_weights(at, end);
      at = end;
    } else {
      for (unsigned i = 0; i < header - 127; ++i)
        weights.push_back(i % 2 == 0 ? at[i / 2] >> 4 : at[i / 2] & 15);
      at += (header - 126) / 2;
    }
    return Huffman(std::move(weights));
  }

  void unpack(Bits bits, std::size_t count, Bytes& out) const {
    for (; count > 0; --count) {
      const Entry& entry = entries_[bits.peek(longest_)];
      bits.skip(entry.bits);
      out.push_back(entry.symbol);
    }
  }

  Huffman() = default;

 private:
  struct Entry {
    unsigned char symbol, bits;
  };

  // A symbol has `1 << (weight - 1)` entries. The last one's weight fills the table.
  explicit Huffman(Bytes weights) {
    unsigned used = 0;
    for (unsigned char weight : weights) used += weight == 0 ? 0 : 1U << (weight - 1);
    longest_ = static_cast<unsigned>(std::bit_width(used));
    weights.push_back(static_cast<unsigned char>(std::bit_width((1U << longest_) - used)));
    for (unsigned weight = 1; weight <= longest_; ++weight)
      for (std::size_t symbol = 0; symbol < weights.size(); ++symbol)
        if (weights[symbol] == weight)
          entries_.insert(entries_.end(), std::size_t{1} << (weight - 1),
                          {static_cast<unsigned char>(symbol),
                           static_cast<unsigned char>(longest_ + 1 - weight)});
  }

  // Two states take turns.
  static Bytes packed_weights(const unsigned char* at, const unsigned char* end) {
    const Fse code = Fse::read(at);
    Bits bits(at, static_cast<std::size_t>(end - at));
    unsigned states[2];
    for (unsigned& state : states) state = code.first(bits);
    Bytes weights;
    for (unsigned turn = 0;; turn = 1 - turn) {
      weights.push_back(static_cast<unsigned char>(code.symbol(states[turn])));
      states[turn] = code.next(states[turn], bits);
      if (!bits.beyond_start()) continue;
      weights.push_back(static_cast<unsigned char>(code.symbol(states[1 - turn])));
      return weights;
    }
  }

  unsigned longest_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace reachscan::helper
