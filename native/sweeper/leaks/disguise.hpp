// Aligned words that are not pointers into the heap but may represent one: a pointer with a tag in
// the high bits, one past the end of a block, a pointer as setjmp() stores it, or an address as a
// number of a language runtime.
#pragma once

#include "arch/mangling.hpp"
#include "sweeper/blob/host.hpp"
#include "sweeper/leaks/hull_test.hpp"

namespace reachscan::sweeper {

constexpr unsigned kTagBits = 16;

// A range of values that need a closer look wherever the heap is.
struct Band {
  uint64_t start, length;

  constexpr bool contains(uint64_t value) const { return value - start < length; }
  [[REACHSCAN_WIDE]] arch::Masks contain(arch::Lanes values) const {
    return arch::are_within(values, start, length);
  }
};

// A cheap test that passes few words, and every word that needs a closer look.
class DisguiseFilter {
 public:
  // `plain`: words that look like pointers into the hulls pass, too.
  DisguiseFilter(const heaps::Hulls& hulls, uint64_t guard, bool plain = false)
      : hull_(hulls), low_digits_(in_digits(hulls.low)), guard_(guard), plain_(plain ? ~0ull : 0) {}

  bool passes(uint64_t value) const {
    return may_be_disguise(value) || (plain_ != 0 && hull_.contains(value));
  }

  bool may_be_disguise(uint64_t value) const {
    bool odd = value % heaps::kGranule == heaps::kEndOffset || value % heaps::kPage == 0 ||
               value != untagged(value);
    return hull_.contains(unmangled(value)) || (odd && hull_.contains(untagged(value), 1)) ||
           low_digits_.contains(value) || kIntegers.contains(value) || kDoubles.contains(value) ||
           kBoxes.contains(value);
  }

  bool passes_at(uint64_t address) const { return passes(heaps::word(address)); }

  // Bit i is set if word i of this many lines passes.
  uint64_t passing(uint64_t at, unsigned lines) const { return hull_.passing(*this, at, lines); }

  // The same for the four words from `address` on.
  template <bool kTwo>
  [[REACHSCAN_WIDE]] unsigned bits_of_lanes(uint64_t address) const {
    const arch::Lanes value = arch::load_lanes(address);
    arch::Lanes hidden = arch::unmangled(value, guard_);
    arch::Lanes bare = value & arch::all_lanes(~0ull >> kTagBits);
    arch::Masks odd =
        ((value & arch::all_lanes(heaps::kGranule - 1)) == arch::all_lanes(heaps::kEndOffset)) |
        ((value & arch::all_lanes(heaps::kPage - 1)) == arch::all_lanes(0)) | (value != bare) |
        (arch::all_lanes(plain_) != arch::all_lanes(0));
    return arch::bits_of(hull_.contain<kTwo>(hidden) | (odd & hull_.contain<kTwo>(bare, 1)) |
                         low_digits_.contain(value) | kIntegers.contain(value) |
                         kDoubles.contain(value) | kBoxes.contain(value));
  }

  // Returns whether a word may be one that setjmp() stored. Among 32-bit words, too many would be
  // by chance, so the address of code must follow.
  bool may_be_mangled(const heaps::Space& space, uint64_t at) const {
    constexpr uint64_t kNext = arch::kJumpProgramCounter - arch::kJumpStackPointer;
    if (heaps::kWord == 8) return true;
    if (!space.readable(at + kNext, heaps::kWord)) return false;
    const abi::Mapping* code = space.find(unmangled(heaps::word(at + kNext)));
    return code != nullptr && (code->perms & wire::kExecute) != 0;
  }

  // Calls visit(form, address) for each way to interpret a word. A number only counts as the
  // address of the start of a block; an address one past the end follows the block that it means.
  template <typename Visit>
  void each_meaning(uint64_t value, Visit visit) const {
    if (guard_ != 0) visit(wire::kMangled, unmangled(value));
    if (untagged(value) == value) visit(wire::kOnePastTheEnd, value);
    visit_tagged(value, visit);
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

  HullTest hull_;
  Band low_digits_;
  uint64_t guard_;
  uint64_t plain_;  // all bits, if plain words pass
};

}  // namespace reachscan::sweeper
