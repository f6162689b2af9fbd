// Blocks that GWP-ASan has given pages of their own.
#pragma once

#include "heaps/gwp_asan.hpp"
#include "heaps/scudo/layout.hpp"

namespace reachscan::heaps::scudo {

inline uint64_t end_of_guarded(const Region& region, uint64_t block) {
  return block + region.block_bytes;
}

class Guarded {
 public:
  Guarded(const Space& space, const Instance& instance, uint32_t arena, const Enumeration& found)
      : space_(space), instance_(instance), arena_(arena), found_(found) {}

  Verdict claim_all() {
    gwp_asan::each_pool(space_, instance_.data, [this](gwp_asan::Pool pool) {
      if (verdict_.fine()) claim(pool);
    });
    return verdict_;
  }

 private:
  void claim(gwp_asan::Pool pool) {
    if (!pool.is_known(space_))
      return stop("the guarded blocks are recorded in an unknown form", pool.at);
    claim_region({pool.records().start, pool.records().end, wire::kThreadHeap, arena_, 0, 0});
    for (uint64_t i = 0; i < pool.slots() && verdict_.fine(); ++i) claim_slot(pool, pool.record(i));
  }

  void claim_slot(gwp_asan::Pool pool, gwp_asan::Record record) {
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
