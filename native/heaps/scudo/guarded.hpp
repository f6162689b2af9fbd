// GWP-ASan, which is a part of Scudo: it gives a few blocks, chosen at random, a page of their own
// between two guard pages. It starts with a mark and a version number.
#pragma once

#include "heaps/scudo/layout.hpp"

namespace reachscan::heaps::scudo {

// gwp_asan::AllocatorState, and what follows it in the pool.
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
  uint64_t records() const { return word(at + 144); }

  // Text may look like a mark.
  bool is_pool() const {
    return load<uint32_t>(at) == kMark && page() == kPage && slots() != 0 && slots() <= kMaxSlots &&
           memory().start % kPage == 0 && memory().start < memory().end;
  }
  // Every other page is a guard, and so are the first one and the last one or two.
  bool is_known() const {
    return version() != 0 && version() <= kMaxVersion &&
           memory().end == memory().start + (2 * slots() + version()) * kPage;
  }
};

// gwp_asan::AllocationMetadata.
struct Record {
  uint64_t at;

  static constexpr uint64_t kBytes = 568;

  uint64_t block() const { return word(at); }
  uint64_t size() const { return word(at + 8); }
  bool is_freed() const { return load<uint8_t>(at + 560) != 0; }
};

inline uint64_t end_of_guarded(const Region& region, uint64_t block) {
  return block + region.block_bytes;
}

class Guarded {
 public:
  Guarded(const Space& space, const Instance& instance, uint32_t arena, const Enumeration& found)
      : space_(space), instance_(instance), arena_(arena), found_(found) {}

  // Blocks are in no pool if the setting says so.
  Verdict claim_all() {
    Range data = instance_.data;
    for (uint64_t at = align_up(data.start, 8); at + Pool::kBytes <= data.end; at += 8) {
      if (at % kPage == 0) at = space_.skip_absent(at);
      if (at + Pool::kBytes > data.end) break;
      Pool pool{at};
      if (pool.is_pool()) claim(pool);
      if (!verdict_.fine()) break;
    }
    return verdict_;
  }

 private:
  void claim(Pool pool) {
    uint64_t records = pool.records(), bytes = pool.slots() * Record::kBytes;
    if (!pool.is_known() || records % kPage != 0 || !space_.readable(records, bytes) ||
        !space_.is_anonymous(records, records + bytes))
      return stop("the guarded blocks are recorded in an unknown form", pool.at);
    Range own{records, align_up(records + bytes, kPage)};
    claim_region({own.start, own.end, wire::kThreadHeap, arena_, 0, 0});
    for (uint64_t i = 0; i < pool.slots() && verdict_.fine(); ++i)
      claim_slot(pool, {records + i * Record::kBytes});
  }

  void claim_slot(Pool pool, Record record) {
    if (record.block() == 0 || record.is_freed()) return;
    uint64_t block = record.block(), page = block & ~(kPage - 1);
    if (!pool.memory().contains(block) || (page - pool.memory().start) / kPage % 2 == 0 ||
        record.size() > page + kPage - block || block % kGranule != 0 ||
        !space_.readable(page, kPage))
      return stop("a guarded block is not in its page", block);
    claim_region({page, page + kPage, wire::kMapped, arena_, 0,
                  static_cast<uint32_t>(record.size()), end_of_guarded});
    if (verdict_.fine()) found_.add_block(block, record.size(), page + kPage);
  }

  void claim_region(const Region& region) {
    verdict_ = found_.claim_apart(region, "guarded blocks overlap the memory of something else");
  }

  void stop(const char* reason, uint64_t address) { verdict_ = invalid(reason, address); }

  const Space& space_;
  const Instance& instance_;
  uint32_t arena_;
  Enumeration found_;
  Verdict verdict_;
};

}  // namespace reachscan::heaps::scudo
