// Blocks that were too large for an arena and got a mapping of their own. Nothing links them: each
// starts at a page, with a header that says so, and mp_ contains their number.
#pragma once

#include "heaps/glibc/arena_regions.hpp"
#include "heaps/glibc/params.hpp"

namespace reachscan::heaps::glibc {

struct MappedChunk {
  uint64_t user;
  uint64_t end;   // of the mapping
  uint32_t tail;  // bytes at the end that do not belong to the user
};

// Until 2.42 the size field holds the whole length; 2.43 omits the header's 16 bytes, and may flag
// huge pages in the lowest bit of the preceding word.
inline bool read_mapped_header(uint64_t base, uint64_t header, uint64_t limit, MappedChunk& chunk) {
  uint64_t offset = header - base;
  uint64_t raw = raw_size(header);
  if ((raw & kFlagBits) != kMapped || (word(header) & ~1ull) != offset) return false;
  uint64_t size = raw & ~kFlagBits;
  if (size < kHeader || size > limit - header) return false;
  uint64_t end = header + size;
  if (end % kPage == 0) {
    chunk = {header + kHeader, end, 0};
    return true;
  }
  if ((end + kHeader) % kPage == 0 && end + kHeader <= limit) {
    chunk = {header + kHeader, end + kHeader, kWord};
    return true;
  }
  return false;
}

// Returns whether a page begins like the mapping of a block, with either a valid or a stale length.
inline bool resembles_mapped_header(uint64_t base) {
  uint64_t header = first_chunk(base), before = header - base;
  uint64_t size = raw_size(header) & ~kFlagBits;
  return (raw_size(header) & kFlagBits) == kMapped && (word(header) & ~1ull) == before &&
         size != 0 && ((before + size) % kPage == 0 || (before + size + kHeader) % kPage == 0);
}

// A block with a large alignment starts later in its mapping, at a page, and its header holds the
// distance from the base. The header at the base remains, but a realloc makes it stale, and moves
// the block to where its alignment can no longer be determined.
inline bool page_aligned_chunk_at(uint64_t user, Range run, MappedChunk& chunk) {
  uint64_t header = user - kHeader;
  if (header < run.start || user >= run.end || (raw_size(header) & kFlagBits) != kMapped)
    return false;
  uint64_t base = header - (word(header) & ~1ull);
  return base % kPage == 0 && base >= run.start && base < header && resembles_mapped_header(base) &&
         read_mapped_header(base, header, run.end, chunk);
}

// Smaller alignments keep the block in the first page.
inline bool mapped_chunk_at(uint64_t base, uint64_t limit, MappedChunk& chunk) {
  if (limit - base < kPage || !resembles_mapped_header(base)) return false;
  for (uint64_t alignment = 2 * kChunkAlignment; alignment < kPage; alignment *= 2)
    if (read_mapped_header(base, base + alignment - kHeader, limit, chunk)) return true;
  return read_mapped_header(base, first_chunk(base), limit, chunk);
}

// Finds the mapped blocks and claims their memory.
class MappedChunks {
 public:
  // `stacks`: those that threads run on, sorted and disjoint.
  MappedChunks(const Space& space, const List<Range>& stacks, BlockMap& blocks, Totals& totals)
      : space_(space), stacks_(stacks), blocks_(blocks), totals_(totals) {}

  // `expected`: their number according to the library.
  Verdict claim_all(uint64_t expected) {
    claim_within([this](uint64_t page) { return space_.accessible_run(page); });
    // Stale data may look like a block that extends across inaccessible memory; but a program may
    // also have made a page of a block inaccessible.
    if (count < expected)
      claim_within([this](uint64_t page) { return space_.anonymous_run(page); });
    return full_ ? Verdict{Verdict::kNoMemory, nullptr, 0} : Verdict{};
  }

  // Called if `expected` is certain. Memory of other kinds may contain what looks like a block. Two
  // signs tell it from one. The kernel places a new mapping next to others, while such memory is in
  // the middle of its own mapping. And blocks are mapped if they are large, while a page that
  // begins with a number like the size of a small one is not rare. If those with a sign, or with
  // either, are as many as the surplus, they are not blocks.
  void drop_surplus(uint64_t expected) {
    if (count <= expected) return;
    blocks_.sort_regions();
    for (unsigned signs : {kApart, kSmall, kApart | kSmall}) {
      uint64_t doubtful = 0;
      Range run{0, 0};
      for (std::size_t i = 0; i < blocks_.regions.size(); ++i) doubtful += has_any(signs, i, run);
      if (doubtful == count - expected) return drop(signs);
    }
  }

  uint64_t count = 0;

 private:
  // Signs that something is not a block.
  static constexpr unsigned kApart = 1, kSmall = 2;
  // Half of the threshold from which blocks are mapped, unless the program sets another.
  static constexpr uint64_t kUsuallyMapped = 64 << 10;

  template <typename RunOf>
  void claim_within(RunOf run_of) {
    // Blocks whose true header comes later are claimed first, since there may be a stale header at
    // their base. The true header ends its page; the block after it may never have been written.
    each_page(run_of, [](uint64_t page, Range run, MappedChunk& chunk, uint64_t& base) {
      uint64_t user = page + kPage;
      if (!page_aligned_chunk_at(user, run, chunk)) return false;
      base = user - kHeader - (word(user - kHeader) & ~1ull);
      return true;
    });
    each_page(run_of, [](uint64_t page, Range run, MappedChunk& chunk, uint64_t& base) {
      base = page;
      return mapped_chunk_at(page, run.end, chunk);
    });
  }

  // Visits every page of anonymous memory that does not belong to an arena, an earlier block or a
  // stack.
  template <typename RunOf, typename Find>
  void each_page(RunOf run_of, Find find) {
    Range run{0, 0};
    for (const abi::Mapping& m : space_) {
      if (!Space::is_written_anonymous(m) || (m.flags & abi::kProgramBreak) != 0) continue;
      if (!run.contains(m.start)) run = run_of(m.start);
      for (uint64_t page = m.start; page < m.end && !full_;) {
        MappedChunk chunk{};
        uint64_t base = page;
        bool found = find(page, run, chunk, base);
        // Finding the owner takes a search; at other pages the headers have already been rejected.
        uint64_t next = found || page == m.start ? owned_until(base) : 0;
        // Memory that reaches into another region is not a block.
        if (found && next == 0 && blocks_.region_in({base, chunk.end}) == nullptr) {
          claim(base, chunk);
          next = chunk.end;
        }
        page = next > page ? next : page + kPage;
      }
    }
  }

  // Returns the end of whatever `page` already belongs to; 0 if it is free.
  uint64_t owned_until(uint64_t page) const {
    if (const Region* owner = blocks_.region_in({page, page + 1}))
      return align_up(owner->end, kPage);
    std::size_t next =
        partition_point(stacks_.size(), [&](std::size_t i) { return stacks_[i].end <= page; });
    return next < stacks_.size() && stacks_[next].contains(page) ? stacks_[next].end : 0;
  }

  void drop(unsigned signs) {
    std::size_t kept = 0;
    Range run{0, 0};
    for (std::size_t i = 0; i < blocks_.regions.size(); ++i) {
      if (has_any(signs, i, run)) {
        forget(blocks_.regions[i]);
      } else {
        blocks_.regions[kept++] = blocks_.regions[i];
      }
    }
    while (blocks_.regions.size() > kept) blocks_.regions.pop();
  }

  bool has_any(unsigned signs, std::size_t index, Range& run) const {
    const Region& region = blocks_.regions[index];
    if (region.kind != wire::kMapped) return false;
    bool is_small = region.end - region.start < kUsuallyMapped;
    return ((signs & kSmall) != 0 && is_small) ||
           ((signs & kApart) != 0 && has_no_neighbours(index, run));
  }

  // `run`: cached for the next region, since computing it takes time and it may contain many.
  bool has_no_neighbours(std::size_t index, Range& run) const {
    const Region& region = blocks_.regions[index];
    bool behind = index > 0 && align_up(blocks_.regions[index - 1].end, kPage) == region.start;
    bool before =
        index + 1 < blocks_.regions.size() && blocks_.regions[index + 1].start == region.end;
    if (behind || before) return false;
    if (!run.contains(region.start)) run = space_.accessible_run(region.start);
    return run.start != region.start && run.end != region.end;
  }

  void forget(const Region& region) {
    uint64_t user = blocks_.first_live(region.start);
    blocks_.drop_live(user);
    totals_.subtract(region.end - region.tail - user);
    --count;
  }

  void claim(uint64_t base, const MappedChunk& chunk) {
    blocks_.add_live(chunk.user);
    blocks_.add_boundary(chunk.end);
    totals_.add(chunk.end - chunk.tail - chunk.user);
    full_ = !blocks_.add_region({base, chunk.end, wire::kMapped, 0, chunk.tail, 0});
    ++count;
  }

  const Space& space_;
  const List<Range>& stacks_;
  BlockMap& blocks_;
  Totals& totals_;
  bool full_ = false;
};

}  // namespace reachscan::heaps::glibc
