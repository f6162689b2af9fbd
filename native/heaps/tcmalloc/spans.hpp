// Iterates over all spans in address order: puts blocks into the map, and claims the memory of
// spans and of the allocator's own structures.
#pragma once

#include "heaps/tcmalloc/debug_block.hpp"
#include "heaps/tcmalloc/metadata.hpp"
#include "heaps/tcmalloc/own_object.hpp"

namespace reachscan::heaps::tcmalloc {

class Spans {
 public:
  Spans(const Space& space, const Instance& instance, Metadata& metadata, uint32_t arena,
        const Enumeration& found)
      : space_(space),
        instance_(instance),
        metadata_(metadata),
        found_(found),
        region_{0, 0, wire::kThreadHeap, arena, 0, 0},
        own_(space, instance.file),
        budget_(steps(space)) {}

  Verdict claim_all() {
    uint64_t known = 0;  // a page of the tree that was written to
    for (uint64_t page = 0; page < kPages && verdict_.fine();) {
      if (!budget_.spend(1)) return invalid("there are more spans than memory for them", page);
      uint64_t slot = instance_.root + 8 * (page >> kLeafBits), leaf = word(slot);
      uint64_t at = leaf == 0 ? slot : leaf + 8 * (page % kLeafSlots);
      uint64_t step = leaf == 0 ? kLeafSlots : 1;
      if (leaf != 0 && page >= leaf_end_) enter_leaf(leaf, page);
      if (!verdict_.fine()) break;
      if (at / kPage != known) {
        uint64_t written = space_.skip_absent(at);
        known = written / kPage;
        uint64_t skipped = (written - at) / 8 * step, left = kLeafSlots - page % kLeafSlots;
        if (skipped != 0) {
          page += leaf == 0 || skipped < left ? skipped : left;
          continue;
        }
      }
      page = leaf == 0 || word(at) == 0 ? page + step : claim(word(at), page);
    }
    close_region();
    return verdict_;
  }

 private:
  static uint64_t steps(const Space& space) {
    uint64_t pages = 0;
    for (const abi::Mapping& m : space) pages += (m.end - m.start) / kPage;
    return 8 * kRootSlots + 8 * pages;
  }

  void enter_leaf(uint64_t leaf, uint64_t page) {
    leaf_end_ = (page / kLeafSlots + 1) * kLeafSlots;
    if (leaf % 8 != 0 || !space_.readable(leaf, kLeafBytes)) {
      stop("what finds the spans is not in the allocator's own memory", leaf);
    } else {
      verdict_ = metadata_.claim(leaf, kLeafBytes);
    }
  }

  // Returns the page after the span, which may be in the next leaf.
  uint64_t claim(uint64_t at, uint64_t page) {
    if (at % 8 != 0 || !space_.readable(at, kSpanBytes))
      return stop("a span's structure is not in readable memory", at);
    Span span = read_span(at);
    if (span.first != page || span.length == 0 || span.length > kPages - page ||
        !is_anonymous({address_of(page), address_of(page + span.length)}))
      return stop("a span is not where the allocator looks for it", address_of(page));
    verdict_ = metadata_.claim(at, kSpanBytes);
    if (!verdict_.fine()) return 0;
    extend_region(span);
    const char* wrong = claim_blocks(span);
    return wrong == nullptr ? page + span.length : stop(wrong, address_of(page));
  }

  const char* claim_blocks(const Span& span) {
    uint64_t start = address_of(span.first), bytes = address_of(span.length);
    if (span.use > Use::kReturned) return "a span has an unknown use";
    if (span.use != Use::kBlocks) {
      found_.blocks.add_boundary(start);
      return nullptr;
    }
    if (span.size_class >= instance_.classes.count) return "a span is of an unknown class";
    if (span.size_class != 0) return claim_small(span, {start, start + bytes});
    return claim_large(span, {start, start + bytes});
  }

  const char* claim_large(const Span& span, Range memory) {
    uint64_t size = memory.end - memory.start;
    if (span.is_sample) {
      if (!space_.readable(span.free_list, 8)) return "nothing says how large a sampled block is";
      size = instance_.classes.rounded(word(span.free_list));
      if (size > memory.end - memory.start) return "a sampled block is larger than its span";
    }
    found_.blocks.add_live(memory.start);
    if (size < memory.end - memory.start) found_.blocks.add_boundary(memory.start + size);
    found_.totals.add(size);
    return nullptr;
  }

  // Blocks that are not in the span's list are in the program or in a cache.
  const char* claim_small(const Span& span, Range memory) {
    uint32_t size = instance_.classes.size(span.size_class);
    uint64_t count = (memory.end - memory.start) / size, block = memory.start;
    if (span.handed_out > count) return "a span has handed out more blocks than it has";
    for (uint64_t i = 0; i < count; ++i, block += size) found_.blocks.add_live(block);
    if (block < memory.end) found_.blocks.add_boundary(block);
    uint64_t free = span.free_list;
    for (uint64_t left = count - span.handed_out; left > 0; --left, free = word(free)) {
      if (!memory.contains(free) || !found_.blocks.is_live(free) || !space_.readable(free, 8))
        return "a span's list of free blocks is not consistent";
      found_.blocks.drop_live(free);
    }
    if (free != 0) return "a span has more free blocks than it counts";
    if (any_debug_block(memory, size))
      return "the blocks of tcmalloc have the headers of its debug form, which is not understood";
    found_.totals.blocks += span.handed_out;
    found_.totals.bytes += uint64_t{span.handed_out} * size;
    if (size == OwnObject::kSize) drop_own_object(memory);
    return nullptr;
  }

  bool any_debug_block(Range memory, uint64_t size) {
    if (size < kLeastDebugBlock) return false;
    for (uint64_t at = memory.start; at + size <= memory.end && examined_ < kDebugSample;
         at += size) {
      if (!found_.blocks.is_live(at)) continue;
      ++examined_;
      if (is_debug_block(space_, at, size)) return true;
    }
    return false;
  }

  void drop_own_object(Range memory) {
    if (!space_.readable(memory.start, memory.end - memory.start)) return;
    for (uint64_t block = memory.start; block < memory.end; block += OwnObject::kSize) {
      if (!own_.is_at(block) || !found_.blocks.is_live(block)) continue;
      found_.blocks.drop_live(block);
      found_.totals.subtract(OwnObject::kSize);
    }
  }

  // Consecutive spans are one region.
  void extend_region(const Span& span) {
    if (region_.end != address_of(span.first)) {
      close_region();
      region_.start = address_of(span.first);
    }
    region_.end = address_of(span.first + span.length);
  }

  void close_region() {
    if (region_.start == region_.end || !verdict_.fine()) return;
    verdict_ = found_.claim(region_, "a span overlaps the memory of something else");
    // Something may have been found there already.
    if (verdict_.fine() && !found_.blocks.is_live(region_.end))
      found_.blocks.add_boundary(region_.end);
  }

  bool is_anonymous(Range memory) {
    if (memory.start < run_.start || memory.end > run_.end)
      run_ = space_.anonymous_run(memory.start);
    return memory.start >= run_.start && memory.end <= run_.end;
  }

  uint64_t stop(const char* reason, uint64_t address) {
    verdict_ = invalid(reason, address);
    return 0;
  }

  const Space& space_;
  const Instance& instance_;
  Metadata& metadata_;
  Enumeration found_;
  Region region_;
  OwnObject own_;
  uint64_t leaf_end_ = 0;
  Range run_{0, 0};
  Budget budget_;
  unsigned examined_ = 0;  // to recognise the debug form
  Verdict verdict_;
};

}  // namespace reachscan::heaps::tcmalloc
