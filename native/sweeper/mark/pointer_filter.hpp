// Extracts from memory the words that may point into the heap, and keeps them until they are taken.
//
// Most words are not pointers, and a branch could not be predicted. So there is no branch per word,
// only one for long runs without any candidate.
#pragma once

#include "arch/lanes.hpp"
#include "sweeper/mark/scratch.hpp"

namespace reachscan::sweeper {

// How a small block is read: by four loads of four words. Where fewer words are left, a load
// overlaps the one before it instead of reading past the block: the line behind a block has not
// been prefetched, so it would have to be waited for.
struct Loads {
  uint8_t offsets[4] = {};  // from the block's start, in bytes
  uint16_t fresh = 0;       // a bit for each word of the four loads that no earlier one has read
};

// The loads for a block of each number of words.
struct LoadsOf {
  static constexpr unsigned kMaxWords = 16;

  constexpr LoadsOf() {
    for (unsigned count = 0; count <= kMaxWords; ++count)
      for (unsigned first = 0; first < count; first += 4) {
        unsigned end = count < first + 4 ? count : first + 4;
        unsigned start = first == 0 ? 0 : end - 4;
        words[count].offsets[first / 4] = static_cast<uint8_t>(start * 8);
        unsigned read = (1u << (end - start)) - 1, again = (1u << (first - start)) - 1;
        words[count].fresh |= static_cast<uint16_t>((read & ~again) << first);
      }
  }

  Loads words[kMaxWords + 1];
};
constexpr LoadsOf kLoadsOf;

class PointerFilter {
 public:
  static constexpr uint64_t kMaxScanBytes = 4096;                     // bytes of one scan
  static constexpr uint64_t kMaxSmallBlock = 8 * LoadsOf::kMaxWords;  // bytes of a small block
  static constexpr unsigned kMaxBlocks = 1280;                        // in one scan
  // A scan prefetches this far ahead. The hardware prefetcher moves on to the next page too late.
  static constexpr uint64_t kAhead = 1024;  // bytes

  // Keeps words in `hull`, at least `capacity` of them.
  PointerFilter(heaps::Range hull, uint64_t capacity)
      : hull_(hull), wide_(has_wide_words()), capacity_(capacity), found_(capacity_ + kRoom) {}

  uint64_t size() const { return last_ - first_; }
  bool empty() const { return first_ == last_; }
  void add(uint64_t value) { found_[last_++] = value; }
  const uint64_t* values() const { return found_.get() + first_; }

  // Removes the first `count` values.
  void drop(uint64_t count) {
    first_ += count;
    if (first_ == last_) first_ = last_ = 0;
  }

  // Returns whether there is room for the values found in kMaxScanBytes bytes, or in kMaxBlocks
  // small blocks.
  bool has_room() const { return last_ <= capacity_; }

  // Moves the values to the front, if many have been removed there.
  void move_up() {
    if (first_ < capacity_ / 2) return;
    for (uint64_t i = first_; i < last_; ++i) found_[i - first_] = found_[i];
    last_ -= first_;
    first_ = 0;
  }

  // Scans the head of a block.
  void scan_head(heaps::Range head) {
    uint64_t* to = found_.get() + last_;
    for (uint64_t at = head.start; at < head.end; at += heaps::kWord) {
      *to = heaps::word(at);
      to += hull_.contains(*to);
    }
    keep_until(to);
  }

  // Scans the whole words of [start, end), at most kMaxScanBytes bytes. No block starts there.
  void scan(uint64_t start, uint64_t end) {
    end = start + ((end - start) & ~uint64_t{heaps::kWord - 1});
    if (wide_ && end - start >= kHalf) return scan_wide(start, end);
    // Local copies, since the compiler must assume that the stores change the members.
    const uint64_t low = hull_.start, length = hull_.end - hull_.start;
    uint64_t* to = found_.get() + last_;
    for (uint64_t at = start; at < end; at += heaps::kWord) {
      uint64_t value = heaps::word(at);
      *to = value | heaps::kElsewhere;
      to += value - low < length;
    }
    keep_until(to);
  }

  // Scans so many granules; there must be room for all their words.
  void scan_granules(const heaps::Granule* granules, unsigned count) {
    const uint64_t low = hull_.start, length = hull_.end - hull_.start;
    uint64_t* to = found_.get() + last_;
    for (unsigned i = 0; i < count; ++i) {
      const uint64_t at = granules[i] & ~(heaps::kGranule - 1);
      const uint64_t how = granules[i] & heaps::kElsewhere;
      const uint64_t first = heaps::word(at);
      *to = first | how;
      to += first - low < length;
      if (heaps::kFine) continue;
      const uint64_t second = heaps::word(at + heaps::kWord);
      *to = second | how;
      to += (second - low < length) & ((granules[i] & heaps::kIsLast) == 0);
    }
    keep_until(to);
  }

  // The same for `count` blocks of at most kMaxSmallBlock bytes; larger ones go to `scan_large`.
  template <typename ScanLarge>
  void scan_blocks(const heaps::Range* blocks, unsigned count, ScanLarge scan_large) {
    if (wide_) return scan_blocks_wide(blocks, count, scan_large);
    for (unsigned i = 0; i < count; ++i) {
      if (is_small(blocks[i])) {
        heaps::Range head = heaps::head_of(blocks[i]);
        scan_head(head);
        scan(head.end, blocks[i].end);
      } else {
        scan_large(blocks[i]);
      }
    }
  }

 private:
  static constexpr uint64_t kHalf = heaps::kLine / 2;  // four words: tested together
  static_assert(kHalf == heaps::kHeadBytes || heaps::kWord != 8);
  static constexpr uint64_t kRoom =
      (kMaxScanBytes + kMaxBlocks * kMaxSmallBlock) / heaps::kWord + 4;

  // Tests which of four words are in the hull.
  class Window {
   public:
    [[REACHSCAN_WIDE]] explicit Window(heaps::Range hull)
        : low_(arch::all_lanes(hull.start + kSign)),
          length_(arch::all_lanes(hull.end - hull.start + kSign)) {}

    [[REACHSCAN_WIDE]] unsigned has(arch::Lanes words) const {
      return arch::bits_of(reinterpret_cast<arch::Masks>(words - low_) <
                           reinterpret_cast<arch::Masks>(length_));
    }

   private:
    static constexpr uint64_t kSign = 1ull << 63;  // the processor compares only signed numbers
    arch::Lanes low_, length_;
  };

  static bool is_small(heaps::Range block) { return block.end - block.start <= kMaxSmallBlock; }

  void keep_until(const uint64_t* to) { last_ = static_cast<uint64_t>(to - found_.get()); }

  // Needs at least four words.
  [[gnu::target(REACHSCAN_WIDE_TARGET)]] void scan_wide(uint64_t start, uint64_t end) {
    const Window window(hull_);
    uint64_t* to = found_.get() + last_;
    uint64_t at = start;
    for (; at + heaps::kLine <= end; at += heaps::kLine) {
      if (at + kAhead < end) heaps::fetch(at + kAhead);
      const arch::Lanes first = arch::load_lanes(at), second = arch::load_lanes(at + kHalf);
      unsigned in_first = window.has(first), in_second = window.has(second);
      if ((in_first | in_second) == 0) continue;
      to = pack_elsewhere(first, in_first, to);
      to = pack_elsewhere(second, in_second, to);
    }
    if (at + kHalf <= end) {
      const arch::Lanes lanes = arch::load_lanes(at);
      to = pack_elsewhere(lanes, window.has(lanes), to);
      at += kHalf;
    }
    // The rest, after some words that have been tested already.
    const arch::Lanes lanes = arch::load_lanes(end - kHalf);
    unsigned left = 0xf0u >> (end - at) / 8 & 0xf;
    keep_until(pack_elsewhere(lanes, window.has(lanes) & left, to));
  }

  template <typename ScanLarge>
  [[gnu::target(REACHSCAN_WIDE_TARGET)]] void scan_blocks_wide(const heaps::Range* blocks,
                                                               unsigned count,
                                                               ScanLarge scan_large) {
    const Window window(hull_);
    uint64_t* to = found_.get() + last_;
    for (unsigned i = 0; i < count; ++i) {
      const heaps::Range block = blocks[i];
      // Reads past the end of a small block stay on its page.
      if (is_small(block) && block.start % heaps::kPage <= heaps::kPage - kMaxSmallBlock) {
        to = scan_small(window, block, to);
      } else {
        keep_until(to);
        scan_large(block);
        to = found_.get() + last_;
      }
    }
    keep_until(to);
  }

  [[REACHSCAN_WIDE]] static uint64_t* scan_small(const Window& window, heaps::Range block,
                                                 uint64_t* to) {
    const Loads loads = kLoadsOf.words[(block.end - block.start) / 8];
    const uint64_t start = block.start;
    const arch::Lanes a = arch::load_lanes(start), b = arch::load_lanes(start + loads.offsets[1]);
    const arch::Lanes c = arch::load_lanes(start + loads.offsets[2]);
    const arch::Lanes d = arch::load_lanes(start + loads.offsets[3]);
    unsigned inside = window.has(a) | window.has(b) << 4 | window.has(c) << 8 | window.has(d) << 12;
    inside &= loads.fresh;
    to = arch::pack_lanes(a, inside & 0xf, to);
    inside >>= 4;
    if (inside == 0) return to;
    to = pack_elsewhere(b, inside & 0xf, to);
    to = pack_elsewhere(c, inside >> 4 & 0xf, to);
    return pack_elsewhere(d, inside >> 8, to);
  }

  [[REACHSCAN_WIDE]] static uint64_t* pack_elsewhere(arch::Lanes words, unsigned bits,
                                                     uint64_t* to) {
    return arch::pack_lanes(words | arch::all_lanes(heaps::kElsewhere), bits, to);
  }

  heaps::Range hull_;
  bool wide_;
  uint64_t capacity_;
  Scratch<uint64_t> found_;  // the values are at [first_, last_)
  uint64_t first_ = 0, last_ = 0;
};

}  // namespace reachscan::sweeper
