// What is not in use in GLib's pages (slices.hpp): free slices, and what follows the last. Besides
// the list of each page, threads keep magazines, which are lists of free slices of one size, and
// put full ones into a depot for all (gslice.c).
//
//   a thread's magazines: address of the first ones | of the second ones |
//                         first slice, count | ... for each size | the same for the second ones
//   slices of a magazine: next slice | 0 | what was there before
//   if in the depot:      next slice | previous magazine, of the first slice
//                         next slice | when it was put there
//                         next slice | next magazine
//                         next slice | number of slices
#pragma once

#include "memory/rounding.hpp"
#include "sweeper/stale/slices.hpp"
#include "sweeper/stale/targets.hpp"

namespace reachscan::sweeper {

class FreeSlices {
 public:
  FreeSlices(const heaps::BlockMap& blocks, Targets& targets)
      : blocks_(blocks), slices_(blocks), targets_(targets), unused_(map_memory, kMost) {}

  // Adds what the words of free slices lead to, if the block is a page or a thread's magazines.
  // Thread-safe.
  void look_at(heaps::Range block) {
    if (slices_.is_page(block.start)) {
      look_at_page(block);
    } else {
      look_at_magazines(block);
    }
  }

  // Called once, after all calls to look_at().
  void sort() { heaps::sort(unused_, starts_before); }

  // Returns whether the word is in a free slice, behind what links these, or at the end of a page.
  bool contain(uint64_t slot) const {
    std::size_t next = heaps::lower_bound(unused_, {slot + 1, slot + 1}, starts_before);
    return next != 0 && unused_[next - 1].contains(slot);
  }

 private:
  static constexpr std::size_t kMost = 1 << 18;
  static constexpr uint64_t kFewestInDepot = 4, kMostInMagazine = 256;
  static constexpr uint64_t kData = heaps::kWord;

  static bool starts_before(const heaps::Range& a, const heaps::Range& b) {
    return a.start < b.start;
  }

  void look_at_page(heaps::Range block) {
    const uint64_t page = block.start;
    add({slices_.end_of(page), block.end});
    uint64_t bytes = slices_.each_free(page, [](uint64_t) {});
    if (bytes == 0) return;
    slices_.each_free(page, [&](uint64_t slice) { add_slice(slice, bytes); });
    for (uint64_t slice = page; slice + bytes <= slices_.info_of(page); slice += Slices::kUnit)
      if (is_in_depot(slice)) add_magazine(slice, bytes);
  }

  void look_at_magazines(heaps::Range block) {
    const auto [start, end] = block;
    uint64_t first = start + 2 * heaps::kWord;
    if (end - start < 2 * Slices::kUnit || heaps::word(start) != first) return;
    uint64_t second = heaps::word(start + heaps::kWord), bytes = second - first;
    bool are_magazines = second > first && second < end &&
                         heaps::may_hold_request(end - start, first - start + 2 * bytes);
    if (!are_magazines) return;
    for (uint64_t at = 0; at + Slices::kUnit <= bytes; at += Slices::kUnit) {
      add_magazine(heaps::word(first + at), at + Slices::kUnit);
      add_magazine(heaps::word(second + at), at + Slices::kUnit);
    }
  }

  // Returns whether it is the first slice of a magazine in the depot.
  bool is_in_depot(uint64_t slice) const {
    uint64_t previous = heaps::word(slice + kData);
    if (!slices_.are_around(previous)) return false;
    uint64_t third = after(after(slice)), fourth = after(third);
    if (fourth == 0) return false;
    uint64_t next = heaps::word(third + kData), count = heaps::word(fourth + kData);
    if (count < kFewestInDepot || count > kMostInMagazine || !slices_.are_around(next))
      return false;
    uint64_t third_of_previous = after(after(previous));
    return third_of_previous != 0 && heaps::word(third_of_previous + kData) == slice &&
           heaps::word(next + kData) == slice;
  }

  // Returns the slice that another one leads to, or 0 if there is none.
  uint64_t after(uint64_t slice) const {
    uint64_t next = slice == 0 ? 0 : heaps::word(slice);
    return slices_.are_around(next) ? next : 0;
  }

  // Adds the slices of a magazine, unless it is being changed.
  void add_magazine(uint64_t first, uint64_t bytes) {
    uint64_t count = 0;
    for (uint64_t slice = first; slice != 0; slice = heaps::word(slice))
      if (slices_.bytes_of(slice) != bytes || ++count > kMostInMagazine) return;
    for (uint64_t slice = first; slice != 0; slice = heaps::word(slice)) add_slice(slice, bytes);
  }

  void add_slice(uint64_t slice, uint64_t bytes) { add({slice + Slices::kUnit, slice + bytes}); }

  void add(const heaps::Range& unused) {
    if (unused.start == unused.end) return;
    targets_.add_unused(blocks_.block_of(unused.start), unused);
    SpinLock::Guard guard(lock_);
    unused_.push(unused);
  }

  const heaps::BlockMap& blocks_;
  const Slices slices_;
  Targets& targets_;
  heaps::List<heaps::Range> unused_;
  SpinLock lock_;
};

}  // namespace reachscan::sweeper
