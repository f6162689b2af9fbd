// GWP-ASan, which is a part of Scudo and of bionic: it gives a few blocks, chosen at random, a page
// of their own between two guard pages, and records who allocated them. It starts with a mark and a
// version number.
#pragma once

#include "heaps/heap.hpp"

namespace reachscan::heaps::gwp_asan {

// gwp_asan::AllocationMetadata.
struct Record {
  uint64_t at;

  static constexpr uint64_t kBytes = 568;

  uint64_t block() const { return word(at); }
  uint64_t size() const { return word(at + 8); }
  bool is_freed() const { return load<uint8_t>(at + 560) != 0; }
};

// gwp_asan::AllocatorState, and what follows it in gwp_asan::GuardedPoolAllocator.
struct Pool {
  uint64_t at;

  static constexpr uint32_t kMark = 0x4e415341;  // "ASAN"
  static constexpr uint16_t kMaxVersion = 2;
  static constexpr uint64_t kMaxSlots = 1 << 16;
  static constexpr uint64_t kBytes = 152;

  uint16_t version() const { return load<uint16_t>(at + 4); }
  uint64_t slots() const { return word(at + 8); }
  Range memory() const { return {word(at + 16), word(at + 24)}; }
  uint64_t page() const { return word(at + 32); }
  // A mapping of its own.
  Range records() const {
    return {word(at + 144), align_up(word(at + 144) + slots() * Record::kBytes, kPage)};
  }
  Record record(uint64_t slot) const { return {word(at + 144) + slot * Record::kBytes}; }

  // Text may look like a mark.
  bool is_pool() const {
    return load<uint32_t>(at) == kMark && page() == kPage && slots() != 0 && slots() <= kMaxSlots &&
           memory().start % kPage == 0 && memory().start < memory().end;
  }
  // Every other page is a guard, and so are the first one and the last one or two.
  bool is_known(const Space& space) const {
    Range own = records();
    return version() != 0 && version() <= kMaxVersion &&
           memory().end == memory().start + (2 * slots() + version()) * kPage &&
           own.start % kPage == 0 && space.readable(own.start, own.end - own.start) &&
           space.is_anonymous(own.start, own.end);
  }
};

// Calls visit(pool) for each pool in a module's data. There is none if the setting says so.
template <typename Visit>
void each_pool(const Space& space, Range data, Visit visit) {
  for (uint64_t at = align_up(data.start, kWord); at + Pool::kBytes <= data.end; at += kWord) {
    if (at % kPage == 0) at = space.skip_absent(at);
    if (at + Pool::kBytes > data.end) break;
    if (Pool{at}.is_pool()) visit(Pool{at});
  }
}

}  // namespace reachscan::heaps::gwp_asan
