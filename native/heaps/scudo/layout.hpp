// The shape of the data of Scudo, LLVM's hardened allocator (compiler-rt's scudo_standalone), in
// its default configuration for Linux.
//
//   block   | header     | the program's part      | slack     |
//            ^^^^^^^^^^^^ 16 bytes, or more if the program asked for an aligned block
//
// A header is one word. It contains the block's state and size, and a checksum of itself and its
// address, so no operation leaves it half done.
#pragma once

#include "heaps/heap.hpp"
#include "heaps/scudo/checksum.hpp"

namespace reachscan::heaps::scudo {

constexpr uint64_t kHeaderBytes = 16;

// Each size class has a part of the address space of its own, whose start is shifted by some pages.
// Class 0 is for lists of free blocks.
constexpr unsigned kClasses = 45;
constexpr uint64_t kClassReach = 1ull << 32;
constexpr uint64_t kMaxShift = 16 * kPage;

constexpr uint64_t size_of_class(unsigned number) {
  constexpr unsigned kLinear = 8;
  constexpr uint64_t kStep = 32, kMiddle = kLinear * kStep;
  if (number <= kLinear) return number * kStep;
  uint64_t power = kMiddle << (number - kLinear) / 4;
  return power + power / 4 * ((number - kLinear) % 4);
}

// An aligned block leaves this at its start, and then a number: how much later its header is.
constexpr uint32_t kAlignedMarker = 0x44554353;

enum State : unsigned { kAvailable, kAllocated, kQuarantined };

struct Header {
  uint64_t bits;

  unsigned size_class() const { return bits & 255; }
  unsigned state() const { return bits >> 8 & 3; }
  // Of a block with a mapping of its own: the bytes between its end and that of the mapping.
  uint64_t size() const { return bits >> 12 & 0xfffff; }
  // How much later than in the usual place the header is.
  uint64_t shift() const { return (bits >> 32 & 0xffff) * 16; }
};

inline Header header_of(uint64_t block) { return {word(block - kHeaderBytes)}; }

// Returns where the program's part starts of what the allocator has set apart.
inline uint64_t block_in(uint64_t slot) {
  uint64_t shift = load<uint32_t>(slot) == kAlignedMarker ? load<uint32_t>(slot + 4) : 0;
  return slot + kHeaderBytes + shift;
}

// A block with a mapping of its own (LargeBlock::Header), right before the slot.
struct Large {
  uint64_t at;

  static constexpr uint64_t kBytes = 48;

  uint64_t previous() const { return word(at); }
  uint64_t next() const { return word(at + 8); }
  // What the program can access. A guard page precedes it, and another one follows.
  uint64_t start() const { return word(at + 16); }
  uint64_t bytes() const { return word(at + 24); }
  uint64_t end() const { return start() + bytes(); }
  uint64_t slot() const { return at + kBytes; }
};

// Where the usable bytes of a block end that was found to be one.
inline uint64_t exact_end(const Region&, uint64_t block) {
  Header header = header_of(block);
  if (header.size_class() != 0) return block + header.size();
  uint64_t slot = block - kHeaderBytes - header.shift();
  return Large{slot - Large::kBytes}.end() - header.size();
}

// The offsets that differ between releases. Those of the large blocks and of the cache of their
// mappings count from the end of the descriptions of classes.
struct Layout {
  // In the description of a size class.
  uint64_t start, mapped, carved;
  uint64_t entries;  // of the cache
  uint64_t list;     // of large blocks
  uint64_t counts;   // of large blocks that were allocated, and of those that were freed
};

constexpr Layout kLayouts[] = {
    {32, 64, 72, 40, 1584, 1632},  // LLVM 14
    {32, 64, 72, 40, 1592, 1640},  // LLVM 16
    {16, 88, 96, 48, 1600, 1656},  // LLVM 19
};

constexpr uint64_t kCookieBefore = 192;  // before the descriptions of classes
constexpr uint64_t kClassBytes = 192;
constexpr uint64_t kClassesBytes = kClasses * kClassBytes;

constexpr uint32_t kCacheEntries = 32;
constexpr uint64_t kEntryBytes = 48;
constexpr uint64_t kMaxEntriesField = 12;

// One copy of the allocator in the process.
struct Instance {
  uint32_t file;
  Range data;        // of its module
  uint64_t classes;  // descriptions of size classes
  Layout layout;

  static constexpr uint64_t kBytes = kCookieBefore + kClassesBytes + 1664;

  uint32_t cookie() const { return load<uint32_t>(classes - kCookieBefore); }
  uint64_t start(unsigned number) const { return field(number, layout.start); }
  uint64_t mapped(unsigned number) const { return field(number, layout.mapped); }
  // The bytes of which blocks were made.
  uint64_t carved(unsigned number) const { return field(number, layout.carved); }
  uint64_t cache() const { return classes + kClassesBytes; }
  Range variables() const { return {classes - kCookieBefore, classes - kCookieBefore + kBytes}; }

 private:
  uint64_t field(unsigned number, uint64_t offset) const {
    return word(classes + number * kClassBytes + offset);
  }
};

}  // namespace reachscan::heaps::scudo
