// Iterates over the blocks of all size classes: puts those that the program has into the map, and
// claims the memory of the classes.
#pragma once

#include "heaps/scudo/layout.hpp"
#include "memory/edge_run.hpp"

namespace reachscan::heaps::scudo {

// What blocks in quarantine are noted in. It is a block itself, and looks allocated.
struct QuarantineBatch {
  uint64_t at;

  static constexpr uint64_t kBytes = 8176;
  static constexpr uint32_t kMax = 1019;

  uint32_t count() const { return load<uint32_t>(at + 16); }
  uint64_t block(uint32_t number) const { return word(at + 24 + 8 * number); }
};

class Classes {
 public:
  Classes(const Space& space, const Instance& instance, Checksums& checksums, uint32_t arena,
          const Enumeration& found)
      : space_(space),
        instance_(instance),
        checksums_(checksums),
        arena_(arena),
        found_(found),
        edges_(found.blocks) {}

  Verdict claim_all() {
    for (unsigned number = 0; number < kClasses && verdict_.fine(); ++number) claim(number);
    return verdict_;
  }

 private:
  static constexpr uint64_t kAhead = 2048;  // the hardware prefetcher stops at the end of a page

  void claim(unsigned number) {
    Range memory{instance_.start(number), instance_.start(number) + instance_.mapped(number)};
    if (memory.start == memory.end) return;
    is_readable_ = space_.readable(memory.start, memory.end - memory.start);
    verdict_ =
        found_.claim_apart({memory.start, memory.end, wire::kThreadHeap, arena_, 0, 0, exact_end},
                           "the memory of a size class overlaps that of something else");
    if (!verdict_.fine() || number == 0) return;
    memory_end_ = memory.end;
    uint64_t carved = memory.start + instance_.carved(number), size = size_of_class(number);
    for (uint64_t slot = memory.start; slot < carved && verdict_.fine(); slot += size) {
      fetch(slot + kAhead);
      claim_slot(slot, number, size);
    }
    edges_.flush();
  }

  void claim_slot(uint64_t slot, unsigned number, uint64_t size) {
    // The program may have protected pages of its blocks, but not these.
    if (!is_readable_ && !space_.readable(slot, kHeaderBytes))
      return stop("the start of a slot cannot be read", slot);
    uint64_t block = block_in(slot);
    if (block > slot + size || (!is_readable_ && !space_.readable(block - kHeaderBytes, 8)))
      return stop("an aligned block is not where its mark says", slot);
    Header header = header_of(block);
    if (header.state() != kAllocated) return;
    if (!checksums_.accept(block, header.bits))
      return stop("a block's header does not match its checksum", block);
    if (header.size_class() != number || header.shift() != block - slot - kHeaderBytes ||
        header.size() > slot + size - block)
      return stop("a block's header does not fit its size class", block);
    if (header.size() == QuarantineBatch::kBytes && is_quarantine({block})) return;
    add(block, header.size());
  }

  // A block of zero bytes takes a granule, too. If the program asked for an aligned one, that may
  // be the first granule of the next slot, where its header is.
  void add(uint64_t block, uint64_t size) {
    if (block == memory_end_) return;
    edges_.add_live(block);
    found_.totals.add(size);
    edges_.add_boundary(align_up(block + (size != 0 ? size : 1), kGranule));
  }

  bool is_quarantine(QuarantineBatch batch) {
    if (batch.count() == 0 || batch.count() > QuarantineBatch::kMax) return false;
    for (uint32_t i = 0; i < batch.count(); ++i) {
      uint64_t block = batch.block(i);
      if (!space_.readable(block - kHeaderBytes, kHeaderBytes)) return false;
      if (header_of(block).state() != kQuarantined) return false;
    }
    return true;
  }

  void stop(const char* reason, uint64_t address) { verdict_ = invalid(reason, address); }

  const Space& space_;
  const Instance& instance_;
  Checksums& checksums_;
  uint32_t arena_;
  Enumeration found_;
  EdgeRun edges_;
  bool is_readable_ = false;  // all memory of the class
  uint64_t memory_end_ = 0;
  Verdict verdict_;
};

}  // namespace reachscan::heaps::scudo
