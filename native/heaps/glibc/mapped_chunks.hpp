// Blocks that were too large for an arena and got a mapping of their own. Nothing links them: each
// begins at a page, with a header that says so, and mp_ knows how many there are.
#pragma once

#include "heaps/glibc/arena_regions.hpp"
#include "heaps/glibc/params.hpp"

namespace reachscan::heaps::glibc {

struct MappedChunk {
  uint64_t user;
  uint64_t end;   // of the mapping
  uint32_t tail;  // bytes at the end that are not the user's
};

// Until 2.42 the size field holds the whole length; 2.43 leaves out the header's 16 bytes, and may
// mark huge pages in the lowest bit of the preceding word.
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
    chunk = {header + kHeader, end + kHeader, 8};
    return true;
  }
  return false;
}

constexpr unsigned kMaxAlignmentShift = 32;

// A block with a large alignment starts later in its mapping; the header at the base remains, but
// may be stale after a realloc, so the later one is looked for first.
inline bool mapped_chunk_at(uint64_t base, uint64_t limit, MappedChunk& chunk) {
  if (limit - base < kPage || !read_mapped_header(base, base, limit, chunk)) return false;
  MappedChunk aligned;
  for (unsigned shift = 5; shift < kMaxAlignmentShift; ++shift) {
    uint64_t user = align_up(base + kHeader, 1ull << shift);
    uint64_t header = user - kHeader;
    if (header == base || header + 2 * kHeader > limit) continue;
    if (read_mapped_header(base, header, limit, aligned)) {
      chunk = aligned;
      break;
    }
  }
  return true;
}

inline bool holds_stack_pointer(const abi::Mapping& m, const abi::Thread* threads,
                                std::size_t thread_count) {
  for (std::size_t t = 0; t < thread_count; ++t)
    if (threads[t].sp >= m.start && threads[t].sp < m.end) return true;
  return false;
}

inline const Region* owner_of(const BlockMap& blocks, std::size_t known, uint64_t page) {
  for (std::size_t i = 0; i < known; ++i)
    if (blocks.regions[i].contains_start(page)) return &blocks.regions[i];
  return nullptr;
}

// Claims the mapped blocks; their number is returned in `count`.
inline Verdict claim_mapped_chunks(const Space& space, const abi::Thread* threads,
                                   std::size_t thread_count, BlockMap& blocks, Totals& totals,
                                   uint64_t& count) {
  count = 0;
  std::size_t known = blocks.regions.size();  // arena regions; the mapped ones never collide
  uint64_t page = 0;
  for (const abi::Mapping& m : space) {
    if (!Space::is_anonymous(m) || (m.flags & abi::kProgramBreak) != 0) continue;
    if (holds_stack_pointer(m, threads, thread_count)) continue;
    uint64_t limit = space.anonymous_run(m.start).end;
    if (page < m.start) page = m.start;
    while (page < m.end) {
      MappedChunk chunk;
      bool promising = mapped_chunk_at(page, limit, chunk);
      if (promising || page == m.start) {
        if (const Region* owner = owner_of(blocks, known, page)) {
          page = align_up(owner->end, kPage);
          continue;
        }
      }
      if (!promising) {
        page += kPage;
        continue;
      }
      blocks.add_live(chunk.user);
      blocks.add_boundary(chunk.end);
      totals.add(chunk.end - chunk.tail - chunk.user);
      if (!blocks.regions.push({page, chunk.end, wire::kMapped, 0, chunk.tail, 0}))
        return {Verdict::kNoMemory, nullptr, page};
      ++count;
      page = chunk.end;
    }
  }
  return {};
}

}  // namespace reachscan::heaps::glibc
