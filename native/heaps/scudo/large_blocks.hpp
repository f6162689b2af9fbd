// Blocks with mappings of their own, and the cache of mappings that were given back.
#pragma once

#include "heaps/scudo/layout.hpp"

namespace reachscan::heaps::scudo {

class LargeBlocks {
 public:
  LargeBlocks(const Space& space, const Instance& instance, Checksums& checksums, uint32_t arena,
              const Enumeration& found)
      : space_(space), instance_(instance), checksums_(checksums), arena_(arena), found_(found) {}

  Verdict claim_all() {
    claim_list();
    if (verdict_.fine()) claim_cache();
    return verdict_;
  }

 private:
  void claim_list() {
    uint64_t list = find_list();
    if (list == 0)
      return stop("the large blocks are not as many as were allocated and not freed",
                  instance_.cache());
    uint64_t count = word(list), previous = 0, at = word(list + 8);
    // A block that is met again overlaps itself.
    for (uint64_t i = 0; i < count && verdict_.fine(); ++i) {
      Large large{at};
      if (!space_.readable(at, Large::kBytes) || large.previous() != previous)
        return stop("the list of large blocks is not consistent", list);
      claim(large);
      previous = at;
      at = large.next();
    }
    if (verdict_.fine() && (at != 0 || word(list + 16) != previous))
      stop("the list of large blocks does not end with the last one", list);
  }

  // Descriptions of classes do not tell all releases apart, but what is counted does. Where another
  // release has its list, too, there were no large blocks yet.
  uint64_t find_list() const {
    for (const Layout& layout : kLayouts) {
      uint64_t list = instance_.cache() + layout.list, counts = instance_.cache() + layout.counts;
      uint64_t first = word(list + 8), last = word(list + 16), count = word(list);
      if (layout.start == instance_.layout.start && (first != 0) == (count != 0) &&
          (last != 0) == (count != 0) &&
          load<uint32_t>(counts) - load<uint32_t>(counts + 4) == count)
        return list;
    }
    return 0;
  }

  void claim(Large large) {
    Range memory{large.start(), large.end()};
    if (!claim_mapping(memory)) return;
    if (!memory.contains(large.at) || !space_.readable(large.slot(), kHeaderBytes))
      return stop("a large block is not in its mapping", large.at);
    uint64_t block = block_in(large.slot());
    if (!memory.contains(block) || !space_.readable(block - kHeaderBytes, kHeaderBytes))
      return stop("a large block is not in its mapping", large.at);
    Header header = header_of(block);
    if (header.state() != kAllocated) return;
    if (!checksums_.accept(block, header.bits))
      return stop("a large block's header does not match its checksum", block);
    if (header.size_class() != 0 || header.shift() != block - large.slot() - kHeaderBytes ||
        header.size() > memory.end - block)
      return stop("a large block's header does not fit its mapping", block);
    found_.add_block(block, memory.end - header.size() - block, memory.end);
  }

  // LLVM 14 counts the entries without a lock, so its number may be wrong for good.
  void claim_cache() {
    for (uint32_t i = 0; i < kCacheEntries && verdict_.fine(); ++i) {
      uint64_t entry = instance_.cache() + instance_.layout.entries + i * kEntryBytes;
      if (word(entry) != 0) claim_mapping({word(entry), word(entry) + word(entry + 8)});
    }
  }

  bool claim_mapping(Range memory) {
    if (memory.start % kPage != 0 || memory.end % kPage != 0 || memory.end <= memory.start ||
        !space_.is_anonymous(memory.start, memory.end)) {
      stop("a large block's mapping is not anonymous memory", memory.start);
      return false;
    }
    verdict_ =
        found_.claim_apart({memory.start, memory.end, wire::kMapped, arena_, 0, 0, exact_end},
                           "a large block overlaps the memory of something else");
    return verdict_.fine();
  }

  void stop(const char* reason, uint64_t address) { verdict_ = invalid(reason, address); }

  const Space& space_;
  const Instance& instance_;
  Checksums& checksums_;
  uint32_t arena_;
  Enumeration found_;
  Verdict verdict_;
};

}  // namespace reachscan::heaps::scudo
