// Aligned words that are not pointers into the heap but may represent one: a pointer with a tag in
// the high bits or with a number in the low ones, one past the end of a block, a pointer as
// setjmp() stores it, an address as a number of a language runtime, or a side table of Swift.
#pragma once

#include "arch/mangling.hpp"
#include "sweeper/blob/host.hpp"
#include "sweeper/search/hull_test.hpp"

namespace reachscan::sweeper {

constexpr unsigned kTagBits = 16;

// A range of values that need a closer look wherever the heap is.
struct Band {
  uint64_t start, length;

  constexpr bool contains(uint64_t value) const { return value - start < length; }
};

// The 32 bits from bit kFrom of all words in a band.
template <unsigned kFrom>
struct PartBand {
  constexpr explicit PartBand(Band band)
      : start(static_cast<uint32_t>(band.start >> kFrom)),
        length(band.length == 0
                   ? 0
                   : static_cast<uint32_t>((band.start + band.length - 1) >> kFrom) - start + 1) {}

  [[REACHSCAN_WIDE]] arch::PartMasks contain(arch::Parts values) const {
    return arch::parts_within(values, start, length);
  }

  constexpr bool contain_one(uint64_t value) const {
    return static_cast<uint32_t>(value >> kFrom) - start < length;
  }

  uint32_t start, length;
};

// What the upper halves of all mangled pointers into a range have in common.
struct MangledPattern {
  MangledPattern(heaps::Range range, uint64_t guard) {
    uint64_t differing = range.start ^ (range.end - 1);
    uint64_t common = differing == 0 ? ~0ull : ~(~0ull >> __builtin_clzll(differing));
    mask = static_cast<uint32_t>(arch::mangled(common, 0) >> 32);
    bits = static_cast<uint32_t>(arch::mangled(range.start, guard) >> 32) & mask;
  }

  [[REACHSCAN_WIDE]] arch::PartMasks match(arch::Parts values) const {
    return (values & arch::all_parts(mask)) == arch::all_parts(bits);
  }

  uint32_t mask, bits;
};

// A cheap test that passes few words, and every word that needs a closer look.
class DisguiseFilter {
 public:
  DisguiseFilter(const heaps::Hulls& hulls, uint64_t guard)
      : hull_(hulls),
        low_(hulls.low, guard),
        high_(hulls.high, guard),
        low_digits_(in_digits(hulls.low)),
        guard_(guard) {}

  bool passes(uint64_t value) const {
    bool odd = value % heaps::kGranule == heaps::kEndOffset || value % heaps::kPage == 0 ||
               value != untagged(value);
    return hull_.contains(unmangled(value)) || (odd && hull_.contains(untagged(value), 1)) ||
           low_.raised.contain_one(value) || high_.raised.contain_one(value) ||
           kSideTables.contains(value) || low_digits_.contains(value) ||
           kIntegers.contains(value) || kDoubles.contains(value) || kBoxes.contains(value);
  }

  bool passes_at(uint64_t address) const { return passes(heaps::word(address)); }

  // Bit i is set if word i of this many lines passes; some others are set, too, as only parts of
  // words are compared.
  uint64_t passing(uint64_t at, unsigned lines) const {
    if (!hull_.is_wide()) return HullTest::passing_singly(*this, at, lines);
    return hull_.are_two() ? passing_lines<true>(at, lines) : passing_lines<false>(at, lines);
  }

  // Returns whether a word may be one that setjmp() stored. Among 32-bit words, too many would be
  // by chance, so the address of code must follow.
  bool may_be_mangled(const heaps::Space& space, uint64_t at) const {
    constexpr uint64_t kNext = arch::kJumpProgramCounter - arch::kJumpStackPointer;
    if (heaps::kWord == 8) return true;
    if (!space.readable(at + kNext, heaps::kWord)) return false;
    return space.is_code(unmangled(heaps::word(at + kNext)));
  }

  // Calls visit(form, address) for each way to interpret a word. A number only counts as the
  // address of the start of a block; an address one past the end follows the block that it means.
  template <typename Visit>
  void each_meaning(uint64_t value, Visit visit) const {
    if (guard_ != 0) visit(wire::kMangled, unmangled(value));
    if (untagged(value) == value) visit(wire::kOnePastTheEnd, value);
    visit_tagged(value, visit);
    if (value >> (kTagBits + kShortBits) != 0) visit(wire::kTagged, value >> kTagBits);
    if (kSideTables.contains(value)) visit(wire::kTagged, value << kSwiftShift);
    if (kBoxes.contains(value)) visit(wire::kTagged, value << kBoxBits >> kBoxBits);
    if (kDoubles.contains(value)) visit(wire::kNumber, truncated(value));
    if (!kIntegers.contains(value)) return;
    for (unsigned shift = 1; shift <= kMaxShift; ++shift) visit(wire::kNumber, value >> shift);
    if ((value >> kDigitBits & 3) == 0)
      visit(wire::kNumber, (value >> 32) << kDigitBits | (value & ((1u << kDigitBits) - 1)));
  }

 private:
  // Shorter addresses, of programs at fixed addresses, look like any other number, so they are not
  // searched for.
  static constexpr unsigned kAddressBits = arch::kAddressBits;
  // Small integers of Lisps, OCaml and Ruby: shifted, with a tag below.
  static constexpr unsigned kMaxShift = 4;
  // Large integers of Python: 30-bit digits in halves of words. Two digits hold an address.
  static constexpr unsigned kDigitBits = 30;
  static constexpr Band kIntegers{1ull << kAddressBits,
                                  (1ull << (kAddressBits + kMaxShift)) - (1ull << kAddressBits)};
  // Floating-point numbers of the same magnitude.
  static constexpr unsigned kFractionBits = 52;
  static constexpr Band kDoubles{(1023ull + kAddressBits - 1) << kFractionBits,
                                 1ull << kFractionBits};
  // Pointers in the unused bits of a NaN (NaN boxing). All bits set is a small negative integer.
  static constexpr unsigned kBoxBits = 64 - kAddressBits;
  static constexpr Band kBoxes{0xfff8ull << 48, (0x1ffffull << kAddressBits) - (0xfff8ull << 48)};

  // A number of 16 bits below a pointer, which is searched for if it is not this short.
  static constexpr unsigned kShortBits = 32;
  // The word ahead of an object of Swift holds reference counts, or once the object had a weak
  // reference, where its side table is: the address without its low bits, below two that are set.
  static constexpr unsigned kSwiftShift = 3;
  static constexpr Band kSideTables{3ull << 62, 1ull << (kAddressBits - kSwiftShift)};

  // Parts of pointers into a range: tagged or not, mangled, and next to other bits.
  struct Pointers {
    Pointers(heaps::Range range, uint64_t guard)
        : bare({range.start, range.end - range.start + 1}),
          mangled(range, guard),
          raised(above_short(range)) {}

    static Band above_short(heaps::Range range) {
      constexpr uint64_t kLeast = 1ull << kShortBits;
      uint64_t start = range.start < kLeast ? kLeast : range.start;
      return start < range.end ? Band{start << kTagBits, (range.end - start) << kTagBits}
                               : Band{0, 0};
    }

    PartBand<16> bare;
    MangledPattern mangled;
    PartBand<32> raised;
  };

  // Low addresses in two digits, for which a closer look needs more than the word: see
  // python_int.hpp. A single digit is in half a word.
  static Band in_digits(heaps::Range range) {
    constexpr uint64_t kMin = 1ull << kDigitBits, kEnd = 1ull << 32;
    auto digits = [](uint64_t address) {
      return address >> kDigitBits << 32 | (address & (kMin - 1));
    };
    uint64_t start = range.start < kMin ? kMin : range.start;
    uint64_t end = range.end < kEnd ? range.end : kEnd;
    return start < end ? Band{digits(start), digits(end - 1) - digits(start) + 1} : Band{0, 0};
  }

  static uint64_t untagged(uint64_t value) { return value << kTagBits >> kTagBits; }

  // Stack and frame pointers in a jmp_buf are mangled.
  uint64_t unmangled(uint64_t value) const { return arch::unmangled(value, guard_); }

  static uint64_t truncated(uint64_t value) {
    uint64_t fraction = (value & ((1ull << kFractionBits) - 1)) | 1ull << kFractionBits;
    return fraction >> (kFractionBits - kAddressBits + 1);
  }

  template <typename Visit>
  static void visit_tagged(uint64_t value, Visit visit) {
    uint64_t bare = untagged(value);
    // No program has higher addresses.
    if (bare != value && bare < 1ull << kAddressBits) visit(wire::kTagged, bare);
  }

  template <bool kTwo>
  [[gnu::target(REACHSCAN_WIDE_TARGET)]] uint64_t passing_lines(uint64_t at, unsigned lines) const {
    uint64_t bits = 0;
    for (unsigned i = 0; i < lines; ++i)
      bits |= uint64_t{bits_of_line<kTwo>(at + heaps::kLine * i)} << 8 * i;
    return bits;
  }

  template <bool kTwo>
  [[REACHSCAN_WIDE]] unsigned bits_of_line(uint64_t at) const {
    using arch::all_parts;
    constexpr PartBand<32> kUpperIntegers(kIntegers), kUpperDoubles(kDoubles), kUpperBoxes(kBoxes),
        kUpperSideTables(kSideTables);
    const auto [upper, middle, lower] = arch::load_split(at);
    const arch::Parts tag = upper & all_parts(~(~0u >> kTagBits));
    arch::PartMasks odd =
        ((lower & all_parts(heaps::kGranule - 1)) == all_parts(heaps::kEndOffset)) |
        ((lower & all_parts(heaps::kPage - 1)) == all_parts(0)) | (tag != all_parts(0));
    arch::PartMasks near = low_.bare.contain(middle), hidden = low_.mangled.match(upper);
    if (kTwo) near |= high_.bare.contain(middle), hidden |= high_.mangled.match(upper);
    hidden |= low_.raised.contain(upper) | kUpperSideTables.contain(upper);
    if (kTwo) hidden |= high_.raised.contain(upper);
    return arch::bits_of_parts((odd & near) | hidden | PartBand<32>(low_digits_).contain(upper) |
                               kUpperIntegers.contain(upper) | kUpperDoubles.contain(upper) |
                               kUpperBoxes.contain(upper));
  }

  HullTest hull_;
  Pointers low_, high_;
  Band low_digits_;
  uint64_t guard_;
};

}  // namespace reachscan::sweeper
