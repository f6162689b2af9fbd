// The shape of jemalloc's data: size classes, extents (edata_t, before 5.3 extent_t) and the tree
// that maps pages to extents (rtree_t).
#pragma once

#include "heaps/heap.hpp"

namespace reachscan::heaps::jemalloc {

constexpr uint64_t kSlotsField = 64;  // of an extent: a bit for each slot, set if it is free

// The allocator is built for pages of one size, and works with smaller ones, too: Debian's for
// aarch64 has pages of 64 KiB. "Page" means such a page here.
//
// The tree has two levels for addresses of 48 bits and three for 57, depending on the machine on
// which the allocator was built. If an address leaves room, a leaf entry is one word; otherwise it
// is two.
struct Tree {
  unsigned page_bits;
  unsigned levels;
  unsigned node_bits;
  uint64_t entry_bytes;

  constexpr uint64_t page() const { return 1ull << page_bits; }
  // From here on a block has an extent of its own, which may be one page longer, so that the block
  // starts somewhere in the first page.
  constexpr uint64_t min_large() const { return 4 * page(); }
  constexpr unsigned max_slab_slots() const { return page() / 8; }
  constexpr uint64_t extent_bytes() const { return kSlotsField + max_slab_slots() / 8; }

  constexpr uint64_t slots() const { return 1ull << node_bits; }
  constexpr uint64_t node_bytes() const { return 8 * slots(); }
  constexpr uint64_t leaf_bytes() const { return entry_bytes * slots(); }
  // Shifts of addresses to the index in the root, and in a node that leads to leaves.
  constexpr unsigned leaf_shift() const { return page_bits + node_bits; }
  constexpr unsigned root_shift() const { return leaf_shift() + (levels - 2) * node_bits; }
  // The range of memory that one leaf covers.
  constexpr uint64_t reach() const { return 1ull << leaf_shift(); }

  uint64_t entry_at(uint64_t leaf, uint64_t address) const {
    return leaf + entry_bytes * (address >> page_bits & (slots() - 1));
  }
};

constexpr Tree kTreeOf48 = {12, 2, 18, 8};
constexpr Tree kTreeOf57 = {12, 3, 15, 16};
constexpr Tree kTreeOf16KiB = {14, 2, 17, 8};
constexpr Tree kTreeOf64KiB = {16, 2, 16, 8};
constexpr unsigned kAddressBits = 48;

// An extent: pages that hold a slab of small blocks, one large block, or nothing.
struct Layout {
  char name[13];                     // an array: the sweeper has no relocations for a pointer
  unsigned state_shift, state_bits;  // in the first word
  unsigned class_shift;
  unsigned free_shift;
  bool split_caches;  // whether a thread's cache has separate bins for small and large blocks
};

constexpr Layout kFrom53 = {"jemalloc 5.3", 17, 3, 20, 28, false};
constexpr Layout kFrom51 = {"jemalloc 5.1", 16, 2, 18, 26, true};

constexpr unsigned kSlabBit = 12;
constexpr unsigned kArenaBits = 12;
constexpr unsigned kClassBits = 8;
constexpr uint64_t kExtentAlignment = 64;
constexpr uint64_t kAddressField = 8;
constexpr uint64_t kSizeField = 16;  // with a serial number in the bits below a page

// Which classes exist depends on the distance of the smallest ones: 16 bytes, or 8 if so
// configured.
enum class Quantum : uint8_t { k16, k8 };
constexpr uint32_t kNoClass = 232;  // from here on: an extent without blocks

// 8, 16, 32, 48, 64, 80 ..., or 8, 16, 24, 32, 40, ...: above a few times the quantum, four classes
// per power of two.
constexpr uint64_t size_of_class(uint32_t number, Quantum quantum) {
  uint64_t step = quantum == Quantum::k16 ? 16 : 8;
  if (quantum == Quantum::k16) {
    if (number == 0) return 8;
    --number;
  }
  if (number < 4) return step * (number + 1);
  uint32_t group = number / 4, in_group = number % 4;
  return (step * (4 + in_group + 1)) << (group - 1);
}
static_assert(size_of_class(4, Quantum::k16) == 64 && size_of_class(5, Quantum::k16) == 80);
static_assert(size_of_class(36, Quantum::k16) == 16384 && size_of_class(39, Quantum::k8) == 16384);

constexpr uint32_t small_classes(const Tree& tree, Quantum quantum) {
  return (quantum == Quantum::k16 ? 36 : 39) + 4 * (tree.page_bits - 12);
}
static_assert(size_of_class(small_classes(kTreeOf48, Quantum::k16), Quantum::k16) ==
              kTreeOf48.min_large());
static_assert(size_of_class(small_classes(kTreeOf64KiB, Quantum::k8), Quantum::k8) ==
              kTreeOf64KiB.min_large());

struct Extent {
  uint64_t at;  // of the structure
  uint64_t start, end;
  uint64_t block;  // the start of a large block
  uint32_t arena;
  uint32_t size_class;
  uint32_t free_slots;
  bool is_slab;
  bool is_active;

  // An inactive extent may have had other blocks before.
  bool has_blocks() const { return is_active && size_class < kNoClass; }

  uint64_t slot_word(unsigned index) const { return word(at + kSlotsField + 8 * index); }
};

constexpr uint64_t field(uint64_t bits, unsigned shift, unsigned width) {
  return bits >> shift & ((1ull << width) - 1);
}

inline Extent read_extent(uint64_t at, const Tree& tree, const Layout& layout) {
  uint64_t bits = word(at), address = word(at + kAddressField);
  uint64_t start = address & ~(tree.page() - 1);
  return {at,
          start,
          start + (word(at + kSizeField) & ~(tree.page() - 1)),
          address,
          static_cast<uint32_t>(field(bits, 0, kArenaBits)),
          static_cast<uint32_t>(field(bits, layout.class_shift, kClassBits)),
          static_cast<uint32_t>(field(bits, layout.free_shift, tree.page_bits - 2)),
          field(bits, kSlabBit, 1) != 0,
          field(bits, layout.state_shift, layout.state_bits) == 0};
}

// The entry of a leaf for a page.
struct LeafEntry {
  uint64_t extent;
  uint32_t size_class;
  bool is_slab;
};

inline LeafEntry read_entry(uint64_t at, const Tree& tree, const Layout& layout) {
  uint64_t bits = word(at);
  if (tree.entry_bytes == sizeof bits) {
    uint64_t extent = bits & ((1ull << kAddressBits) - 1);  // not signed: bit 47 is set on aarch64
    return {extent & ~(kExtentAlignment - 1), static_cast<uint32_t>(bits >> kAddressBits),
            (bits & 1) != 0};
  }
  // Before 5.3, the class and the flag are separate numbers.
  auto rest = load<uint32_t>(at + 8);
  if (layout.split_caches) return {bits, rest, load<uint8_t>(at + 12) != 0};
  constexpr unsigned kClassShift = 5;
  return {bits, rest >> kClassShift, (rest & 1) != 0};
}

// One copy of the allocator in the process.
struct Instance {
  uint64_t root;
  uint32_t file;
  Tree tree;
  Layout layout;
  Quantum quantum;
  uint64_t large_pad;
};

}  // namespace reachscan::heaps::jemalloc
