// The shape of the data of musl's mallocng (musl 1.2.1 and later): the context, areas of group
// descriptors (struct meta), groups of slots, and the header of each slot.
//
//   group   | meta  ...  | slot 0 ...        | slot 1 ...        | slot 2 ...        |
//                      ^^^^              ^^^^ header: the 4 bytes before a slot
//
// A header contains the index of its slot, how many bytes at the slot's end do not belong to the
// block, and the block's distance from the group's first slot. A block may start later than its
// slot.
#pragma once

#include "heaps/heap.hpp"

namespace reachscan::heaps::musl {

constexpr uint64_t kUnit = 16;
constexpr uint64_t kHeaderBytes = 4;

// malloc_context.
constexpr uint64_t kSecretField = 0;
constexpr uint64_t kInitDoneField = 8;
constexpr uint64_t kFirstAreaField = 56;
constexpr uint64_t kContextBytes = 928;

// meta_area: a page of descriptors.
constexpr uint64_t kNextAreaField = 8;
constexpr uint64_t kSlotCountField = 16;
constexpr uint64_t kDescriptorsField = 24;
constexpr uint64_t kDescriptorBytes = 40;
constexpr uint32_t kDescriptorsInArea = (kPage - kDescriptorsField) / kDescriptorBytes;

// In units. A group of one large block has no class.
constexpr uint16_t kClasses[] = {
    1,   2,   3,   4,    5,    6,    7,    8,    9,    10,   12,   15,   18,   20,   25,   31,
    36,  42,  50,  63,   72,   84,   102,  127,  146,  170,  204,  255,  292,  340,  409,  511,
    584, 682, 818, 1023, 1169, 1364, 1637, 2047, 2340, 2730, 3276, 4095, 4680, 5460, 6552, 8191};
constexpr uint64_t kClassCount = sizeof kClasses / sizeof kClasses[0];

struct Group {
  uint64_t meta;
  uint64_t start;  // 0: the descriptor is not in use
  uint32_t taken;  // a bit per slot
  uint32_t slots;
  uint64_t pages;  // of a mapping of its own, 0 if it has none
  uint64_t stride;
  bool donated;  // the loader gave it memory that modules do not need

  uint64_t slot(uint64_t index) const { return start + kUnit + index * stride; }
  uint64_t end() const { return pages != 0 ? start + pages * kPage : slot(slots); }
  bool is_nested() const { return pages == 0 && !donated; }
};

inline Group read_group(uint64_t meta) {
  uint64_t bits = word(meta + 32);
  uint64_t last = bits & 31, size_class = bits >> 6 & 63;
  Group group{meta, word(meta + 16), 0, static_cast<uint32_t>(last + 1), bits >> 12, 0, false};
  group.donated = group.pages == 0 && (bits >> 5 & 1) == 0;
  uint32_t all = static_cast<uint32_t>((2ull << last) - 1);
  group.taken = all & ~(load<uint32_t>(meta + 24) | load<uint32_t>(meta + 28));
  if (last == 0 && group.pages != 0) {
    group.stride = group.pages * kPage - kUnit;
  } else if (size_class < kClassCount) {
    group.stride = kClasses[size_class] * kUnit;
  }
  return group;
}

// The meaning of the three header bits that are not part of the index.
enum Reserved : unsigned {
  kInTrailer = 5,  // the number is in the last 4 bytes before the next header
  kNested = 6,     // the slot holds a group
  kMoved = 7,      // the block starts later; free() also sets these, and all other bits, first
};
constexpr uint8_t kHeaderOfMoved = kMoved << 5;
constexpr uint8_t kHeaderOfFreed = 0xff;

inline uint8_t header_of(uint64_t block) { return load<uint8_t>(block - 3); }

// The distance of a block from the group's first slot. Large ones have a word for it.
inline uint64_t distance_of(uint64_t block) {
  uint64_t units =
      load<uint8_t>(block - 4) != 0 ? load<uint32_t>(block - 8) : load<uint16_t>(block - 2);
  return units * kUnit;
}

// Returns the end of the usable bytes of a block whose slot ends at `slot_end`; 0 if impossible.
inline uint64_t usable_end(uint64_t block, uint64_t slot_end) {
  uint64_t end = slot_end - kHeaderBytes, reserved = header_of(block) >> 5;
  if (reserved > kInTrailer) return 0;
  if (reserved == kInTrailer) {
    reserved = load<uint32_t>(end - 4);
    if (reserved < kInTrailer) return 0;
  }
  return reserved > end - block ? 0 : end - reserved;
}

// The same for a block that was found to be one.
inline uint64_t exact_end(const Region&, uint64_t block) {
  Group group = read_group(word(block - distance_of(block) - kUnit));
  return usable_end(block, group.slot((header_of(block) & 31) + 1u));
}

// One copy of the allocator in the process.
struct Context {
  uint64_t address;
  uint32_t file;
};

}  // namespace reachscan::heaps::musl
