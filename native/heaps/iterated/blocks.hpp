// The blocks that malloc_iterate() has listed: whether they can be blocks at all, and which memory
// is the allocator's.
//
// All that is known is where blocks are. A page with a block in it is the allocator's as a whole,
// since the kernel gives out pages. Pages between two blocks probably are, but may belong to the
// program if the kernel has put both into one mapping.
#pragma once

#include "heaps/heap.hpp"
#include "memory/edge_run.hpp"

namespace reachscan::heaps::iterated {

// Each run of pages is a region, which the search for leaks excludes from the roots.
constexpr std::size_t kMaxRuns = 1 << 16;
constexpr std::size_t kMaxParts = 1 << 16;

struct Block {
  uint64_t start;
  uint64_t bytes;

  uint64_t end() const { return start + bytes; }
};

inline bool is_before(const Block& a, const Block& b) { return a.start < b.start; }

inline uint64_t exact_end(const Region& region, uint64_t block) {
  const auto& listed = *static_cast<const List<Block>*>(region.listed);
  return listed[lower_bound(listed, {block, 0}, is_before)].end();
}

class Blocks {
 public:
  Blocks(const Space& space, MapMemory map, List<Block>& listed, List<Range>& gaps, uint32_t arena,
         const Enumeration& found)
      : space_(space), map_(map), listed_(listed), gaps_(gaps), arena_(arena), found_(found) {}

  Verdict claim_all() {
    if (!sort_parts()) sort(listed_, is_before);
    for (const Block& block : listed_) {
      if (!verdict_.fine()) break;
      check(block);
      if (verdict_.fine()) extend_run(block);
    }
    if (verdict_.fine()) close_run();
    EdgeRun edges(found_.blocks);
    for (std::size_t i = 0; i < listed_.size() && verdict_.fine(); ++i) add(i, edges);
    edges.flush();
    return verdict_;
  }

 private:
  // Allocators list one size class or chunk after the other, each in order: such parts need only be
  // put in order. Returns false if that does not suffice.
  bool sort_parts() {
    List<Range> parts(map_, kMaxParts);
    for (std::size_t i = 0, first = 0; i < listed_.size(); first = i) {
      for (++i; i < listed_.size() && is_before(listed_[i - 1], listed_[i]);) ++i;
      if (!parts.push({first, i})) return false;
    }
    if (parts.size() < 2) return true;
    sort(parts, [this](const Range& a, const Range& b) {
      return is_before(listed_[a.start], listed_[b.start]);
    });
    List<Block> sorted(map_, listed_.size());
    for (const Range& part : parts) {
      if (!sorted.empty() && !is_before(*(sorted.end() - 1), listed_[part.start])) return false;
      for (uint64_t i = part.start; i < part.end; ++i) sorted.push(listed_[i]);
    }
    listed_ = sorted;
    return true;
  }

  void check(const Block& block) {
    if (block.start % kGranule != 0)
      return stop("malloc_iterate() has listed a block at an odd address", block.start);
    if (block.end() < block.start || !is_anonymous({block.start, edge_of(block)}))
      return stop("malloc_iterate() has listed a block outside of anonymous memory", block.start);
    if (block.start < last_end_)
      return stop("malloc_iterate() has listed blocks that overlap", block.start);
    last_end_ = edge_of(block);
  }

  // A block of zero bytes has a granule, too.
  static uint64_t edge_of(const Block& block) {
    return align_up(block.start + (block.bytes != 0 ? block.bytes : 1), kGranule);
  }

  bool is_anonymous(Range memory) {
    if (memory.start >= accessible_.start && memory.end <= accessible_.end) return true;
    accessible_ = space_.accessible_run(memory.start);
    return memory.start >= accessible_.start && memory.end <= accessible_.end;
  }

  // Consecutive pages with blocks in them are one region.
  void extend_run(const Block& block) {
    Range pages{block.start & ~(kPage - 1), align_up(edge_of(block), kPage)};
    if (pages.start > run_.end) {
      close_run();
      note_gap({run_.end, pages.start});
      run_.start = pages.start;
    }
    run_.end = pages.end;
  }

  void close_run() {
    if (run_.start == run_.end) return;
    if (++runs_ > kMaxRuns)
      return stop("malloc_iterate() has listed blocks in too many places", run_.start);
    Verdict claimed = found_.claim_apart(
        {run_.start, run_.end, wire::kThreadHeap, arena_, 0, 0, exact_end, &listed_},
        "malloc_iterate() has listed blocks in another allocator's memory");
    if (verdict_.fine()) verdict_ = claimed;
  }

  void note_gap(Range gap) {
    const abi::Mapping* m = space_.find(gap.start);
    if (m != nullptr && gap.start > m->start && gap.end < m->end) gaps_.push(gap);
  }

  // Another allocator's block may start where a run ends.
  void add(std::size_t index, EdgeRun& edges) {
    const Block& block = listed_[index];
    uint64_t edge = edge_of(block);
    edges.add_live(block.start);
    found_.totals.add(block.bytes);
    bool touches = index + 1 < listed_.size() && listed_[index + 1].start == edge;
    bool is_foreign = edge % kPage == 0 && found_.blocks.is_live(edge);
    if (!touches && !is_foreign) edges.add_boundary(edge);
  }

  void stop(const char* reason, uint64_t address) { verdict_ = invalid(reason, address); }

  const Space& space_;
  MapMemory map_;
  List<Block>& listed_;
  List<Range>& gaps_;
  uint32_t arena_;
  Enumeration found_;
  Range accessible_{0, 0};
  Range run_{0, 0};
  std::size_t runs_ = 0;
  uint64_t last_end_ = 0;
  Verdict verdict_;
};

}  // namespace reachscan::heaps::iterated
