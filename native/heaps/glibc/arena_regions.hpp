// Which memory each arena owns: the main arena grows by brk (and by mmap where brk fails), a thread
// arena by aligned heaps in a backward-linked list.
#pragma once

#include "heaps/glibc/claim_run.hpp"
#include "heaps/glibc/find_arenas.hpp"
#include "heaps/glibc/params.hpp"

namespace reachscan::heaps::glibc {

constexpr uint64_t kLargestHeap = 4ull << 30;  // four huge pages of 1 GiB

// How much memory the main arenas say they got (system_mem), and how much was found. Foreign memory
// in the break counts if the arena was contiguous when it was taken.
struct Account {
  uint64_t got = 0;
  uint64_t found = 0;
  uint64_t gaps = 0;

  bool adds_up() const { return found <= got + kPage && got <= found + gaps + kPage; }
};

// After other code has moved the break, the arena continues after that memory, at an address that
// only a complete walk can prove. Returns 0 if there is none, or if that memory contains so much
// that looks like chunks that the search would take forever.
inline uint64_t resume_after_gap(uint64_t from, uint64_t limit, uint64_t top, Budget& budget) {
  for (uint64_t chunk = first_chunk(from); chunk + kMinChunk <= limit; chunk += kChunkAlignment) {
    uint64_t raw = raw_size(chunk);
    if ((raw & kFlagBits) != kPrevInUse || chunk_size(chunk) > limit - chunk) continue;
    if (chunk != top && chunk_size(chunk) < kMinChunk) continue;
    Run run = probe_run(chunk, limit, top);
    if (run.valid) return chunk;
    if (!budget.spend(run.chunks)) return 0;
  }
  return 0;
}

// Claims the runs in the break, skipping gaps between them. Returns the last run walked.
inline Run claim_break_runs(uint64_t start, uint64_t limit, uint64_t top, const Enumeration& found,
                            Account& account) {
  Run run;
  Budget budget = Budget::of_walks(limit - start, kMinChunk);
  while (start != 0) {
    run = claim_run(start, limit, top, {start, 0, wire::kProgramBreak, 0, kWord, 0}, found);
    if (!run.valid) return run;
    found.totals.add(run.totals);
    account.found += run.end - start;
    start = run.reached_top ? 0 : resume_after_gap(run.end, limit, top, budget);
    if (start != 0) account.gaps += start - run.end;
  }
  return run;
}

inline bool claimed(const BlockMap& blocks, uint64_t address) {
  return blocks.region_in({address, address + 1}) != nullptr;
}

// Walks from `page`, in case it starts a region that the main arena got from mmap: whole pages,
// with less than a chunk left over. It may be small: 2.36 requests no more than from brk.
inline Run probe_mapped_region(const BlockMap& blocks, uint64_t page, uint64_t limit,
                               uint64_t top) {
  uint64_t chunk = first_chunk(page);
  if (word(chunk) != 0 || (raw_size(chunk) & kFlagBits) != kPrevInUse) return {};
  if (chunk_size(chunk) < kMinChunk || claimed(blocks, page)) return {};
  Run run = probe_run(chunk, limit, top);
  if (run.valid) run.valid = align_up(run.end, kPage) - run.end < kMinChunk;
  return run;
}

// The top chunks of main arenas. A walk must not pass one: the kernel merges regions from mmap, so
// another region may follow it.
struct Tops {
  uint64_t chunks[kMaxInstances];
  std::size_t count = 0;

  // Returns 0 if there is none at or after `address`.
  uint64_t next(uint64_t address) const {
    uint64_t nearest = 0;
    for (std::size_t i = 0; i < count; ++i)
      if (chunks[i] >= address && (nearest == 0 || chunks[i] < nearest)) nearest = chunks[i];
    return nearest;
  }
};

// Claims regions that main arenas got from mmap, anywhere in anonymous memory. It is unknown which
// arena one belongs to.
inline Verdict claim_mapped_regions(const Space& space, const Tops& tops, const Enumeration& found,
                                    Account& account) {
  uint64_t bytes = 0;
  for (const abi::Mapping& m : space) bytes += Space::is_written_anonymous(m) ? m.end - m.start : 0;
  Budget budget = Budget::of_walks(bytes, kMinChunk);
  Range around{0, 0};
  for (const abi::Mapping& m : space) {
    if (!Space::is_written_anonymous(m)) continue;
    if (!around.contains(m.start)) around = space.anonymous_run(m.start);
    for (uint64_t page = m.start; page < m.end;) {
      uint64_t top = tops.next(page);
      Run run = probe_mapped_region(found.blocks, page, around.end, top);
      if (!run.valid) {
        if (!budget.spend(run.chunks))
          return invalid("too much memory looks like regions of the main heap", page);
        page += kPage;
        continue;
      }
      run =
          claim_run(first_chunk(page), run.end, top, {page, 0, wire::kMapped, 0, kWord, 0}, found);
      if (!run.valid) return {Verdict::kNoMemory, nullptr, page};
      found.totals.add(run.totals);
      account.found += align_up(run.end, kPage) - page;
      page = align_up(run.end, kPage);
    }
  }
  return {};
}

inline bool is_contiguous(const Arena& arena) {
  return (load<uint32_t>(arena.address + kFlagsOffset) & kNonContiguous) == 0;
}

inline uint64_t system_mem(const ArenaLayout& layout, const Arena& arena) {
  uint64_t next = arena.address + layout.next;
  bool counts_threads = layout.next != kUntil226.next || word(next + kThreadsAfterNext) < kPage;
  return word(next + (counts_threads ? kSystemMemFrom223 : kSystemMemUntil222));
}

// Returns whether the main heap starts at `base`: the chunks from there must line up, and the arena
// must have got as much memory as there is between there and its end.
inline bool proves_main_heap(const Space& space, const Instance& instance, const Arena& arena,
                             uint64_t base, Budget& budget) {
  uint64_t top = arena.top(instance.layout);
  uint64_t start = first_chunk(base);
  if (!space.readable(top, kHeader)) return false;
  // If these line up, so do the others, or the heap is damaged wherever it starts.
  constexpr uint64_t kEnough = 1 << 16;
  constexpr uint64_t kOfOneProof = 1 << 10;
  if (!budget.spend(kOfOneProof)) return false;
  Run run = probe_run(start, space.anonymous_run(start).end, top, kEnough);
  if (!budget.spend(run.chunks) || !run.valid) return false;
  if (!is_contiguous(arena)) return start != top;
  return top + chunk_size(top) - base - system_mem(instance.layout, arena) < kPage;
}

// Before the first malloc, top points into the arena itself (initial_top).
inline bool has_memory(const ArenaLayout& layout, const Arena& arena) {
  return arena.top(layout) != arena.address + layout.bins - kHeader;
}

// Claims what the main arena got from brk. If that never worked, sbrk_base is a region from mmap.
inline Verdict claim_break(const Space& space, const ArenaLayout& layout, const Arena& arena,
                           const Params& params, const Enumeration& found, Account& account) {
  if (params.sbrk_base == 0) return {};
  uint64_t start = first_chunk(params.sbrk_base);
  const abi::Mapping* m = space.find(start);
  bool in_break = m != nullptr && (m->flags & abi::kProgramBreak) != 0;
  if (!in_break && !is_contiguous(arena)) return {};
  Run run =
      claim_break_runs(start, space.anonymous_run(start).end, arena.top(layout), found, account);
  return run.valid ? Verdict{} : invalid("the main heap's chunks do not line up", run.failed_at);
}

// Returns the heap that contains `address`: heaps are aligned to their maximal size, a power of two
// that depends on the system's huge pages. The smallest size that fits is tried first: a larger
// alignment may lead to an earlier heap of the same arena.
inline uint64_t heap_of(const Space& space, uint64_t address, uint64_t arena) {
  for (uint64_t size = kHeapAlignment; size <= kLargestHeap; size *= 2) {
    uint64_t heap = address & ~(size - 1);
    if (space.readable(heap, 4 * kWord) && word(heap) == arena &&
        address - heap < word(heap + 2 * kWord))
      return heap;
  }
  return 0;
}

inline Verdict claim_thread_arena(const Space& space, const ArenaLayout& layout, const Arena& arena,
                                  const Enumeration& found) {
  uint64_t first = arena.address & ~(kHeapAlignment - 1);
  uint64_t info_size = arena.address - first;
  uint64_t top = arena.top(layout);
  uint64_t heap = heap_of(space, top, arena.address);
  bool newest = true;
  for (std::size_t guard = 0; heap != 0 && guard < (1u << 16); ++guard, newest = false) {
    if (!space.readable(heap, info_size) || word(heap) != arena.address)
      return invalid("a thread heap does not belong to its arena", heap);
    uint64_t start = heap == first ? first_chunk(arena.address + layout.size) : heap + info_size;
    uint64_t limit = heap + word(heap + 2 * kWord);
    if (limit <= start || !space.is_anonymous(heap, limit))
      return invalid("a thread heap is larger than its memory", heap);
    if (found.blocks.region_in({heap, limit}) != nullptr)
      return invalid("a thread heap overlaps another one", heap);
    Region region{heap, limit, wire::kThreadHeap, arena.ordinal, kWord, 0};
    Run run = claim_run(start, limit, newest ? top : 0, region, found);
    if (!run.valid || run.reached_top != newest)
      return invalid("a thread heap's chunks do not line up", run.failed_at);
    found.totals.add(run.totals);
    if (heap == first) return {};
    heap = word(heap + kWord);
  }
  return invalid("an arena's list of heaps does not end at the arena", arena.address);
}

}  // namespace reachscan::heaps::glibc
