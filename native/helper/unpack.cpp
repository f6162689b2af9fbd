// Zstandard (RFC 8878, section 3): a block has literals, and sequences that each tell how many of
// them follow, and which earlier bytes then.
#include "helper/unpack.hpp"

#include <algorithm>

#include "helper/entropy.hpp"

namespace reachscan::helper {
namespace {

constexpr std::size_t kMostBlockBytes = 128 << 10;
constexpr unsigned kHeaderBytes = 5;  // of a frame: the magic number and its descriptor

const std::vector<int> kLiteralCounts = {4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1,  1,  2,  2,
                                         2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1};
const std::vector<int> kLengthCounts = {1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1,  1,  1,  1,  1,  1,  1, 1,
                                        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,  1,  1,  1,  1,  1,  1, 1,
                                        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1};
const std::vector<int> kOffsetCounts = {1, 1, 1, 1, 1, 1, 2, 2, 2, 1,  1,  1,  1,  1, 1,
                                        1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1};

// Numbers from `first` on: `plain` of them have codes of their own, then each code has as many as
// the bits that follow it can tell.
class Ranges {
 public:
  Ranges(unsigned first, unsigned plain, std::initializer_list<unsigned char> bits)
      : bits_(plain, 0) {
    bits_.insert(bits_.end(), bits);
    for (unsigned char count : bits_) {
      first_.push_back(first);
      first += 1U << count;
    }
  }

  unsigned read(unsigned code, Bits& bits) const { return first_[code] + bits.take(bits_[code]); }

 private:
  Bytes bits_;
  std::vector<unsigned> first_;
};

class Unpacking {
 public:
  explicit Unpacking(std::size_t length) { out_.reserve(length + kMostBlockBytes); }

  Bytes run(const unsigned char* packed, std::size_t length) {
    const unsigned char* at = packed + kHeaderBytes;
    const unsigned descriptor = at[-1];
    const bool one_segment = (descriptor & 32) != 0;
    const unsigned size_bytes = descriptor < 64 ? one_segment : 1U << (descriptor >> 6);
    at += (one_segment ? 0 : 1) + size_bytes;
    while (out_.size() < length) {
      const unsigned header = number_at<std::uint32_t>(at) & 0xffffff, size = header >> 3;
      at += 3;
      const unsigned kind = header >> 1 & 3;
      if (kind == 0) out_.insert(out_.end(), at, at + size);
      if (kind == 1) out_.insert(out_.end(), size, *at);
      if (kind == 2) block(at, at + size);
      at += kind == 1 ? 1 : size;
    }
    out_.resize(length);
    return std::move(out_);
  }

 private:
  void block(const unsigned char* at, const unsigned char* end) {
    literals_.clear();
    at = (*at & 3) < 2 ? plain_literals(at) : packed_literals(at);
    unsigned count = *at++;
    if (count == 255) {
      count = number_at<std::uint16_t>(at) + 0x7f00;
      at += 2;
    } else if (count >= 128) {
      count = (count - 128) << 8 | *at++;
    }
    std::size_t used = count == 0 ? 0 : sequences(at, end, count);
    out_.insert(out_.end(), literals_.begin() + static_cast<long>(used), literals_.end());
  }

  const unsigned char* plain_literals(const unsigned char* at) {
    const unsigned form = *at >> 2 & 3, bytes = form == 1 ? 2 : form == 3 ? 3 : 1;
    const unsigned header = number_at<std::uint32_t>(at) & ((1U << 8 * bytes) - 1);
    const unsigned count = header >> (bytes == 1 ? 3 : 4);
    const bool repeated = (*at & 3) == 1;
    at += bytes;
    if (repeated)
      literals_.assign(count, *at);
    else
      literals_.assign(at, at + count);
    return at + (repeated ? 1 : count);
  }

  // As one stream, or as four of the same length.
  const unsigned char* packed_literals(const unsigned char* at) {
    const unsigned form = *at >> 2 & 3, bits = form < 2 ? 10 : form == 2 ? 14 : 18;
    const auto header = number_at<std::uint64_t>(at) >> 4;
    const std::size_t count = header & ((1U << bits) - 1),
                      size = header >> bits & ((1U << bits) - 1);
    const bool own_code = (*at & 3) == 2;
    at += form < 2 ? 3 : form + 2;
    const unsigned char* end = at + size;
    if (own_code) huffman_ = Huffman::read(at);
    std::size_t streams = form == 0 ? 1 : 4, part = (count + streams - 1) / streams;
    const unsigned char* lengths = at;
    if (streams == 4) at += 6;
    for (std::size_t i = 0; i < streams; ++i) {
      bool last = i == streams - 1;
      std::size_t bytes =
          last ? static_cast<std::size_t>(end - at) : number_at<std::uint16_t>(lengths + 2 * i);
      huffman_.unpack(Bits(at, bytes), last ? count - literals_.size() : part, literals_);
      at += bytes;
    }
    return end;
  }

  // Tells how many literals they used.
  std::size_t sequences(const unsigned char* at, const unsigned char* end, unsigned count) {
    static const Ranges literal_ranges(
        0, 16, {1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
    static const Ranges length_ranges(
        3, 32, {1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
    const unsigned modes = *at++;
    choose(literal_code_, modes >> 6 & 3, 6, kLiteralCounts, at);
    choose(offset_code_, modes >> 4 & 3, 5, kOffsetCounts, at);
    choose(length_code_, modes >> 2 & 3, 6, kLengthCounts, at);
    Bits bits(at, static_cast<std::size_t>(end - at));
    unsigned literal = literal_code_.first(bits), offset = offset_code_.first(bits),
             length = length_code_.first(bits);
    std::size_t used = 0;
    for (unsigned left = count;;) {
      const unsigned width = offset_code_.symbol(offset);
      const unsigned distance = (1U << width) + bits.take(width);
      const unsigned copied = length_ranges.read(length_code_.symbol(length), bits);
      const unsigned before = literal_ranges.read(literal_code_.symbol(literal), bits);
      const unsigned char* from = literals_.data() + used;
      out_.insert(out_.end(), from, from + before);
      used += before;
      copy(distance_of(distance, before == 0), copied);
      if (--left == 0) return used;
      literal = literal_code_.next(literal, bits);
      length = length_code_.next(length, bits);
      offset = offset_code_.next(offset, bits);
    }
  }

  static void choose(Fse& code, unsigned mode, unsigned accuracy, const std::vector<int>& counts,
                     const unsigned char*& at) {
    if (mode == 0) code = Fse(accuracy, counts);
    if (mode == 1) code = Fse(*at++);
    if (mode == 2) code = Fse::read(at);
  }

  // The first three numbers stand for the last three distances. After no literals they count from
  // the second on, because the first would only have made the copy before longer.
  unsigned distance_of(unsigned number, bool no_literals) {
    unsigned which = number > 3 ? 3 : number - 1 + no_literals;
    unsigned distance = number > 3 ? number - 3 : which < 3 ? last_[which] : last_[0] - 1;
    std::copy_backward(last_, last_ + std::min(which, 2U), last_ + std::min(which, 2U) + 1);
    last_[0] = distance;
    return distance;
  }

  // What is copied may be what was just written.
  void copy(std::size_t distance, std::size_t length) {
    std::size_t to = out_.size();
    out_.resize(to + length);
    unsigned char* bytes = out_.data() + to;
    for (std::size_t i = 0; i < length; ++i) bytes[i] = *(bytes + i - distance);
  }

  Bytes out_, literals_;
  Huffman huffman_;
  Fse literal_code_, offset_code_, length_code_;
  unsigned last_[3] = {1, 4, 8};
};

}  // namespace

Bytes unpack(const unsigned char* packed, std::size_t length) {
  return Unpacking(length).run(packed, length);
}

}  // namespace reachscan::helper
