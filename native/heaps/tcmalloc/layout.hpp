// The shape of the data of gperftools' tcmalloc: size classes (SizeMap), spans (Span), central
// lists (CentralFreeList), and the tree that maps pages to spans (TCMalloc_PageMap2).
#pragma once

#include "heaps/heap.hpp"

namespace reachscan::heaps::tcmalloc {

// Its pages are larger than those of the processor.
constexpr unsigned kPageBits = 13;
constexpr unsigned kAddressBits = 48;
constexpr unsigned kLeafBits = 18;
constexpr uint64_t kLeafSlots = 1ull << kLeafBits;
constexpr uint64_t kLeafBytes = 8 * kLeafSlots;
constexpr uint64_t kPages = 1ull << (kAddressBits - kPageBits);
constexpr uint64_t kRootSlots = kPages >> kLeafBits;
constexpr uint64_t kRootBytes = 8 * kRootSlots;

constexpr uint64_t address_of(uint64_t page) { return page << kPageBits; }

// Class 0 is for blocks with a span of their own.
constexpr unsigned kMaxClasses = 128;
constexpr uint32_t kMinSize = 8;
constexpr uint32_t kLargestSmall = 256 << 10;

// The sizes of all classes are in one array; the following one contains the number of pages per
// span.
struct Classes {
  uint64_t at = 0;  // of the sizes, 0 if there is no such array
  unsigned count = 0;

  uint32_t size(unsigned number) const { return load<uint32_t>(at + 4 * number); }
  // The size of a block for a request of this size.
  uint64_t rounded(uint64_t asked) const {
    unsigned number = 1;
    while (number < count && size(number) < asked) ++number;
    return number < count ? size(number) : align_up(asked, 1 << kPageBits);
  }

  static constexpr uint64_t bytes() { return (4 + 8) * kMaxClasses + 8; }
};

inline Classes classes_at(uint64_t at) {
  uint64_t pages = align_up(at + 4 * kMaxClasses, 8);
  unsigned number = 1;
  uint32_t last = 0;
  for (; number < kMaxClasses && last != kLargestSmall; ++number) {
    auto size = load<uint32_t>(at + 4 * number);
    uint64_t length = word(pages + 8 * number);
    if (size <= last || size % kMinSize != 0 || length > kLeafSlots || address_of(length) < size)
      return {};
    last = size;
  }
  if (last != kLargestSmall) return {};
  for (unsigned behind = number; behind < kMaxClasses; ++behind)
    if (load<uint32_t>(at + 4 * behind) != 0) return {};
  return {at, number};
}

enum class Use : uint8_t { kBlocks, kFree, kReturned };

struct Span {
  uint64_t first, length;  // in pages
  uint64_t free_list;
  uint32_t handed_out;  // blocks that are not in the free list
  uint32_t size_class;
  Use use;
  bool is_sample;  // the word in place of the free list leads to the block's size
};

constexpr uint64_t kSpanBytes = 48;
constexpr uint64_t kNextField = 16, kPreviousField = 24;

inline Span read_span(uint64_t at) {
  auto bits = load<uint32_t>(at + 40);
  return {word(at),
          word(at + 8),
          word(at + 32),
          bits & 0xffff,
          bits >> 16 & 255,
          static_cast<Use>(bits >> 24 & 3),
          (bits >> 26 & 1) != 0};
}

// The list of one class that all threads share. It contains the headers of two lists of spans,
// followed by chains of free blocks to be passed on unchanged.
struct Central {
  uint64_t at;

  static constexpr uint64_t kClassField = 8;
  static constexpr uint64_t kFullHeader = 0x10, kOtherHeader = 0x40;
  static constexpr uint64_t kChains = 0x80, kChainCount = 0x480;
  static constexpr uint32_t kMaxChains = 64;
  static constexpr uint64_t kBytes = 0x490;
  static constexpr uint64_t kPaddedBytes = 0x4c0;

  uint64_t size_class() const { return word(at + kClassField); }
  uint32_t chains() const { return load<uint32_t>(at + kChainCount); }
  uint64_t chain(uint32_t number) const { return word(at + kChains + 16 * number); }
  uint64_t tail(uint32_t number) const { return word(at + kChains + 16 * number + 8); }
};

inline bool is_empty_list(uint64_t header) {
  return word(header + kNextField) == header && word(header + kPreviousField) == header;
}

// A thread's cache (ThreadCache) starts with a list for each class.
constexpr uint64_t kListBytes = 32;
constexpr uint64_t kListLength = 8, kListSize = 24;
constexpr uint64_t kListsBytes = kMaxClasses * kListBytes;
// The links to the next and the previous cache are at its end, at an offset that differs by
// release.
constexpr uint64_t kLinksAfterLists = 0x80;
constexpr uint64_t kCacheBytes = kListsBytes + kLinksAfterLists;

// One copy of the allocator in the process.
struct Instance {
  uint32_t file;
  Range data;  // of its module
  uint64_t root;
  uint64_t central;
  uint64_t central_stride;
  Classes classes;

  Central central_of(unsigned number) const { return {central + number * central_stride}; }

  // Its variables belong to one object file.
  Range variables() const {
    Range all{root, root + kRootBytes};
    for (Range part : {Range{central, central + kMaxClasses * central_stride},
                       Range{classes.at, classes.at + Classes::bytes()}}) {
      if (part.start < all.start) all.start = part.start;
      if (part.end > all.end) all.end = part.end;
    }
    return all;
  }
};

}  // namespace reachscan::heaps::tcmalloc
