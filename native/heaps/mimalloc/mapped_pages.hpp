// Iterates over all pages of mimalloc 3: puts their blocks into the map, except those in a free
// list, and claims the memory that contains pages. Pages of exited threads are treated like others.
#pragma once

#include "heaps/mimalloc/page_blocks.hpp"
#include "heaps/mimalloc/page_map.hpp"

namespace reachscan::heaps::mimalloc {

class MappedPages {
 public:
  MappedPages(const Space& space, const PageMap& map, uint32_t arena, const Enumeration& found)
      : space_(space), map_(map), arena_(arena), found_(found), blocks_(found) {}

  Verdict claim_all() {
    Budget budget(kMaxUsedEntries);
    each_slice(space_, map_, budget, [this](uint64_t slice, uint64_t at) {
      // Of a large page, only the first slices are in the map.
      if (slice >= next_) visit(slice, read_mapped_page(space_, at, map_.layout));
      return verdict_.fine();
    });
    if (budget.empty()) stop("there are more pages than memory for them", map_.at);
    leave_memory();
    return verdict_;
  }

 private:
  void visit(uint64_t slice, const MappedPage& page) {
    if (page.is_empty() || (!page.is_possible() && is_gone(page.at))) return;
    if (!page.is_possible() || map_.find(space_, page.first) != page.at)
      return stop("a page is not where the allocator looks for it", page.at);
    if (page.first / kMapSlice == slice / kMapSlice) claim(page);
  }

  // In 3.0.1 the map still leads to pages that were released. Their descriptions may have been
  // replaced by another page, or the rest of one.
  bool is_gone(uint64_t at) const {
    uint64_t there = map_.find(space_, at);
    return (there != 0 && there != at) || (at >= claimed_ && at < next_) ||
           (arena_at_ != 0 && memory_.contains(at) && !lists(space_, arena_at_, memory_, at));
  }

  void claim(const MappedPage& page) {
    GivenOut given_out = read_blocks(page);
    if (!space_.is_anonymous(page.first, given_out.end()))
      return stop("a page is not in memory of the allocator's", page.at);
    if (!memory_.contains(page.first)) {
      leave_memory();
      if (page.memory.start < memory_.end)
        return stop("a page is in memory of another one's", page.at);
      memory_ = page.memory;
      arena_at_ = space_.readable(page.arena, kArenaBytes) ? page.arena : 0;
      next_ = memory_.start;
    }
    cover_free(page.first);
    extend_region({page.first, given_out.end()});
    claimed_ = page.first;
    if (const char* wrong = blocks_.claim(given_out); wrong != nullptr) stop(wrong, page.at);
  }

  GivenOut read_blocks(const MappedPage& page) const {
    constexpr uint64_t kFree = 8, kFreed = 24, kFreedByOthers = 32;
    return {page.first,
            page.size,
            page.capacity,
            page.used,
            word(page.at + kFree),
            word(page.at + kFreed),
            word(page.at + kFreedByOthers)};
  }

  // Whatever is left up to `end` is free, or belongs to the allocator itself. Memory that was never
  // written need not be claimed.
  void cover_free(uint64_t end) {
    while (next_ < end) {
      const abi::Mapping* m = space_.find(next_);
      uint64_t piece_end = m == nullptr || m->end > end ? end : m->end;
      if (m != nullptr && Space::is_written_anonymous(*m)) {
        blocks_.close_at(next_);
        extend_region({next_, piece_end});
      }
      next_ = piece_end;
    }
  }

  void extend_region(Range part) {
    if (part.start != region_.end) {
      close_region();
      region_ = {part.start, part.start, wire::kThreadHeap, arena_, 0, 0};
    }
    next_ = region_.end = part.end;
  }

  void leave_memory() {
    cover_free(memory_.end);
    close_region();
  }

  void close_region() {
    if (region_.start != region_.end && verdict_.fine()) {
      blocks_.close_at(region_.end);
      verdict_ = found_.claim(region_, "a page overlaps the memory of something else");
    }
    region_ = {};
  }

  void stop(const char* reason, uint64_t address) {
    if (verdict_.fine()) verdict_ = invalid(reason, address);
  }

  const Space& space_;
  const PageMap& map_;
  uint32_t arena_;
  Enumeration found_;
  PageBlocks blocks_;
  Range memory_{0, 0};  // that contains the last pages
  uint64_t arena_at_ = 0;
  uint64_t next_ = 0;     // everything before is claimed,
  uint64_t claimed_ = 0;  // from here on by the last page
  Region region_ = {};
  Verdict verdict_;
};

}  // namespace reachscan::heaps::mimalloc
