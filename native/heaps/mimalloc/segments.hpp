// Iterates over all segments: claims their memory, and puts the blocks of their pages into the map,
// except those in a free list. There are three lists per page, and each heap has one of blocks
// freed by other threads. Segments of exited threads are treated like others.
#pragma once

#include "heaps/mimalloc/page_blocks.hpp"
#include "heaps/mimalloc/search.hpp"

namespace reachscan::heaps::mimalloc {

class Segments {
 public:
  Segments(const Space& space, const Instance& instance, MapMemory map, uint32_t arena,
           const Enumeration& found)
      : space_(space),
        layout_(instance.layout),
        key_(instance.key),
        arena_(arena),
        found_(found),
        blocks_(found),
        heaps_(map, kMaxHeaps),
        rule_(instance.layout.rules.start) {}

  Verdict claim_all() {
    if (layout_.rules.start == Start::kBehind384) choose_rule();
    each_segment([this](const Segment& segment) { claim(segment); });
    for (uint64_t heap : heaps_)
      if (verdict_.fine()) drop_delayed(heap);
    return verdict_;
  }

 private:
  static constexpr std::size_t kMaxHeaps = 1 << 16;

  template <typename Visit>
  void each_segment(Visit visit) {
    each_place(space_, [&](uint64_t at) {
      Segment segment = segment_at(space_, at, layout_);
      if (segment.bytes == 0 || segment.key != key_ || !verdict_.fine())
        return at + kLeastAlignment;
      visit(segment);
      return align_up(segment.end(layout_), layout_.alignment());
    });
  }

  // Calls visit(its structure, its memory, whether it is a page) for each part of a segment.
  template <typename Visit>
  void each_part(const Segment& segment, Visit visit) {
    if (layout_.is_release_1()) {
      each_page(segment, visit);
    } else {
      each_run(segment, visit);
    }
  }

  template <typename Visit>
  void each_page(const Segment& segment, Visit visit) {
    uint64_t bytes = segment.bytes / segment.entries, at = segment.start + layout_.slices;
    Range span{segment.start, segment.start + segment.info_bytes};
    visit(at, span, false);
    for (uint64_t i = 0; i < segment.entries && verdict_.fine(); ++i, at += layout_.page_bytes) {
      span = {span.end, segment.start + (i + 1) * bytes};
      visit(at - kLacking, span, (load<uint8_t>(at + kInUseField) & 1) != 0);
    }
  }

  // The same for each run of slices.
  template <typename Visit>
  void each_run(const Segment& segment, Visit visit) {
    for (uint64_t i = 0; i < segment.entries && verdict_.fine();) {
      uint64_t at = segment.start + layout_.slices + i * layout_.page_bytes;
      if (!space_.readable(at, layout_.page_bytes)) return stop("a slice is out of reach", at);
      uint64_t count = load<uint32_t>(at + kSliceCountField);
      if (count == 0 || load<uint32_t>(at + kSliceOffsetField) != 0 ||
          count > segment.bytes / kSlice - i)
        return stop("the slices of a segment do not follow each other", at);
      uint64_t start = segment.start + i * kSlice;
      bool is_page = i > 0 && load<uint32_t>(at + layout_.block_size) > 1;
      visit(at, Range{start, start + count * kSlice}, is_page);
      i += count;
    }
  }

  // Determines whether release 2.1 made the pages, from the room that they have for blocks.
  void choose_rule() {
    uint64_t behind = 0, by_size = 0;
    each_segment([&](const Segment& segment) {
      each_run(segment, [&](uint64_t at, Range span, bool is_page) {
        if (!is_page) return;
        Page page = read_page(at, span, layout_);
        behind += fits(page, Start::kBehind384);
        by_size += fits(page, Start::kBySize);
      });
    });
    if (by_size > behind) rule_ = Start::kBySize;
  }

  static bool fits(const Page& page, Start rule) {
    uint64_t offset = offset_of_first(rule, page.size, page.start);
    return page.size <= page.room() - offset && page.reserved == (page.room() - offset) / page.size;
  }

  void claim(const Segment& segment) {
    if (found_.blocks.region_in({segment.start, segment.start + kPage}) != nullptr)
      return stop("a segment overlaps the memory of something else", segment.start);
    region_ = {segment.start, segment.start, wire::kThreadHeap, arena_, 0, 0};
    if (segment.used == 0) {
      cover_free({segment.start, segment.end(layout_)});
    } else {
      each_part(segment, [this](uint64_t at, Range span, bool is_page) {
        if (!is_page) return cover_free(span);
        if (!space_.is_anonymous(span.start, span.end))
          return stop("a page is not in memory of the allocator's", at);
        blocks_.close_at(span.start);
        region_.end = span.end;
        claim_page(at, span);
      });
    }
    close_region(0);
  }

  // Uncommitted parts may not be read, and are in no region.
  void cover_free(Range span) {
    for (uint64_t at = span.start; at < span.end;) {
      const abi::Mapping* m = space_.find(at);
      uint64_t end = m == nullptr || m->end > span.end ? span.end : m->end;
      if (m != nullptr && Space::is_anonymous(*m) && Space::may_read(*m)) {
        blocks_.close_at(at);
        region_.end = end;
      } else {
        close_region(end);
      }
      at = end;
    }
  }

  void claim_page(uint64_t at, Range span) {
    Page page = read_page(at, span, layout_);
    if (page.size == 0 || page.size % kGranule != 0 || page.size > page.room())
      return stop("a page has blocks of an impossible size", at);
    if (!layout_.notes_start() && page.size <= page.room() && !fits(page, rule_) &&
        page.reserved > 1)
      return stop("a page has room for another number of blocks than it says", at);
    uint64_t first = layout_.notes_start()
                         ? word(at + kStartField)
                         : span.start + offset_of_first(rule_, page.size, span.start);
    bool inside = first >= span.start && first < span.end && first % kGranule == 0;
    if (!inside || page.capacity > page.reserved || page.reserved > (span.end - first) / page.size)
      return stop("a page has more blocks than room", at);
    const char* wrong =
        blocks_.claim({first, page.size, page.capacity, page.used, word(at + kFreeField),
                       word(at + layout_.local_free), word(at + layout_.thread_free)});
    if (wrong != nullptr) return stop(wrong, at);
    note_heap(word(at + layout_.heap));
  }

  void note_heap(uint64_t heap) {
    if (heap == 0 || !verdict_.fine()) return;
    for (std::size_t i = heaps_.size(); i > 0; --i)
      if (heaps_[i - 1] == heap) return;
    if (!space_.readable(heap, layout_.heap_delayed + 8))
      return stop("a heap is out of reach", heap);
    if (!heaps_.push(heap)) verdict_ = {Verdict::kNoMemory, nullptr, heap};
  }

  // Drops blocks that other threads freed while the page had no free block.
  void drop_delayed(uint64_t heap) {
    for (uint64_t block = word(heap + layout_.heap_delayed); block != 0; block = word(block)) {
      if (!found_.blocks.may_point(block) || !found_.blocks.is_live(block))
        return stop("a list of blocks that other threads freed leads elsewhere", heap);
      blocks_.drop(block, found_.blocks.end_of(block) - block);
    }
  }

  // The next region may start at `next`.
  void close_region(uint64_t next) {
    if (region_.start != region_.end && verdict_.fine()) {
      blocks_.close_at(region_.end);
      verdict_ = found_.claim(region_, "a segment overlaps the memory of something else");
    }
    region_.start = region_.end = next;
  }

  void stop(const char* reason, uint64_t address) {
    if (verdict_.fine()) verdict_ = invalid(reason, address);
  }

  const Space& space_;
  const Layout& layout_;
  uint64_t key_;
  uint32_t arena_;
  Enumeration found_;
  PageBlocks blocks_;
  List<uint64_t> heaps_;
  Start rule_;
  Region region_ = {};
  Verdict verdict_;
};

}  // namespace reachscan::heaps::mimalloc
