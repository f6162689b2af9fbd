// Pointers stored in 32 bits. GLib's hash tables do so if all pointers of a table are short enough,
// which is the case if a program is loaded at a fixed address and its heap follows. They may have
// tags in their low bits: GTK's cache of styles keeps two flags there, which differ from key to
// key.
#pragma once

#include "sweeper/search/hull_test.hpp"

namespace reachscan::sweeper {

constexpr unsigned kNarrowBits = 32;
constexpr uint64_t kTags = 8;  // in the low bits

// Calls visit(address, value) for both halves of a word, unless the whole word is a short pointer.
template <typename Visit>
void each_half(uint64_t at, Visit visit) {
  uint64_t value = heaps::word(at), upper = value >> kNarrowBits;
  if (upper == 0) return;
  visit(at, value & ((1ull << kNarrowBits) - 1));
  visit(at + 4, upper);
}

class NarrowFilter {
 public:
  explicit NarrowFilter(const heaps::Hulls& hulls)
      : hull_({short_part(hulls), short_part(hulls)}) {}

  // Returns whether no address is that short.
  bool is_empty() const { return hull_.low().start == hull_.low().end; }

  bool passes_at(uint64_t address) const {
    bool passes = false;
    each_half(address, [&](uint64_t, uint64_t half) { passes |= hull_.contains(half); });
    return passes;
  }

  // Bit i is set if a half of word i of this many lines is in the range.
  uint64_t passing(uint64_t at, unsigned lines) const { return hull_.passing(*this, at, lines); }

  // The same for the four words from `address` on.
  template <bool kTwo>
  [[REACHSCAN_WIDE]] unsigned bits_of_lanes(uint64_t address) const {
    const arch::Lanes value = arch::load_lanes(address), upper = value >> kNarrowBits;
    const arch::Lanes lower = value & arch::all_lanes((1ull << kNarrowBits) - 1);
    return arch::bits_of((upper != arch::all_lanes(0)) &
                         (hull_.contain<kTwo>(lower) | hull_.contain<kTwo>(upper)));
  }

 private:
  static heaps::Range short_part(const heaps::Hulls& hulls) {
    constexpr uint64_t kEnd = 1ull << kNarrowBits;
    uint64_t start = hulls.low.start;
    uint64_t end = hulls.high.start < kEnd ? hulls.high.end : hulls.low.end;
    if (end > kEnd) end = kEnd;
    return {start, start < end ? end : start};
  }

  HullTest hull_;
};

// What the 32-bit numbers around one are.
enum class Company { kNumbers, kMixed, kPointers };

// A 32-bit number is an address by chance more often than a 64-bit one. Where such numbers are
// pointers, most numbers around them are, too. But a small table may contain more of what an
// earlier block has left there, such as text. is_pointer(value) tests each number. Words that
// is_address() are pointers of 64 bits, and so are short words.
template <typename IsPointer, typename IsAddress>
Company company_of(heaps::Range around, uint64_t at, IsPointer is_pointer, IsAddress is_address) {
  constexpr uint64_t kReach = 512;  // bytes
  uint64_t first = at & ~7ull, end = around.end - first > kReach ? first + kReach : around.end;
  uint64_t start =
      first - around.start > kReach ? first - kReach : heaps::align_up(around.start, 8);
  unsigned numbers = 0, pointers = 0;
  for (uint64_t word = start; word + 8 <= end; word += 8) {
    if (is_address(heaps::word(word))) continue;
    each_half(word, [&](uint64_t, uint64_t half) {
      numbers += half != 0;
      pointers += half != 0 && is_pointer(half);
    });
  }
  constexpr unsigned kSlots = 8;  // of the smallest tables
  if (kSlots * pointers < numbers) return Company::kNumbers;
  return pointers > 1 && 2 * pointers >= numbers ? Company::kPointers : Company::kMixed;
}

}  // namespace reachscan::sweeper
