// The walker for glibc's malloc (ptmalloc), 2.17 to 2.43. heaps/heap.hpp has its contract.
//
//   find_arenas     main_arena by structure, the ring of all arenas
//   quiet           whether a thread is inside malloc right now
//   params          mp_: where the main heap starts, how many blocks are mapped
//   arena_regions   the memory of each arena, chunk by chunk (walk_chunks)
//   mapped_chunks   blocks with a mapping of their own
//   thread_caches   tcache (since 2.26), also of threads left behind by a fork (threads)
//   fastbins        both are free, though they look allocated (free_lists)
#pragma once

#include "heaps/glibc/arena_regions.hpp"
#include "heaps/glibc/fastbins.hpp"
#include "heaps/glibc/find_arenas.hpp"
#include "heaps/glibc/mapped_chunks.hpp"
#include "heaps/glibc/params.hpp"
#include "heaps/glibc/quiet.hpp"
#include "heaps/glibc/thread_caches.hpp"
#include "heaps/glibc/version.hpp"
#include "libc/threads.hpp"

namespace reachscan::heaps::glibc {

class Walker {
 public:
  // Links to a free chunk's neighbours in its list, and in the list of sizes (fd, bk, fd_nextsize
  // and bk_nextsize).
  static constexpr uint64_t kLinkBytes = 4 * kWord;
  static constexpr bool kNeedsFine = false;
  static constexpr bool kSupportsShortWords = true;

  Walker(const Space& space, const libc::Threads& threads, MapMemory map)
      : arenas(map, kMaxArenas),
        space_(space),
        threads_(threads),
        map_(map),
        fastbins_(map),
        candidates_(map, kMaxCandidates) {
    instance_count = find_instances(space, instances);
  }

  bool is_present() const { return instance_count > 0; }

  bool is_in(uint32_t file) const {
    for (std::size_t i = 0; i < instance_count; ++i)
      if (instances[i].file == file) return true;
    return false;
  }

  bool quiet(abi::QuiesceHint& hint) {
    bool all = true;
    for (std::size_t i = 0; i < instance_count; ++i) {
      if (!instances[i].used) continue;
      List<Arena> own = arenas;
      own.clear();
      if (!list_arenas(instances[i], static_cast<uint32_t>(i), own).fine()) return false;
      all = is_quiet(space_, instances[i], own, threads_.running, threads_.running_count, hint) &&
            all;
    }
    return all;
  }

  void describe(abi::QuiesceHint& hint) const {
    for (std::size_t i = 0; i < instance_count; ++i)
      if (instances[i].used) describe_code(space_, instances[i], hint);
  }

  bool interrupted(abi::QuiesceHint& hint) const {
    describe(hint);
    return any_interrupted(space_, threads_, hint);
  }

  // Its main arena is the process's, so it comes first.
  Verdict enumerate(BlockMap& blocks, OnThreads on_threads, uint32_t) {
    for (std::size_t i = 0; i < instance_count; ++i) {
      if (!instances[i].used) continue;
      Verdict verdict = claim_instance(i, {blocks, totals, on_threads});
      if (!verdict.fine()) return verdict;
    }
    Verdict verdict = complete_main_arenas({blocks, totals, on_threads});
    if (verdict.fine()) verdict = claim_mapped(blocks);
    if (!verdict.fine()) return verdict;
    return drop_free_lists({blocks, totals, on_threads});
  }

  std::size_t arena_count() const { return arenas.size(); }

  void write_name(char (&name)[kNameLength]) const {
    glibc::write_name(space_, instances[0], name);
  }

  template <typename Visit>
  void each_variable(Visit visit) const {
    for (std::size_t i = 0; i < instance_count; ++i)
      visit(Range{instances[i].main_arena, instances[i].main_arena + instances[i].layout.size});
  }

  Warning warning() const {
    if (mapped_found == mapped_expected) return {};
    return {"incomplete-mapped-blocks",
            "the number of separately mapped blocks found differs from the allocator's own count; "
            "some large blocks may be missing or reported wrongly"};
  }

  Instance instances[kMaxInstances];
  std::size_t instance_count = 0;
  List<Arena> arenas;
  Totals totals;
  uint64_t mapped_expected = 0;
  uint64_t mapped_found = 0;

 private:
  static constexpr uint64_t kProofs = 1 << 22;  // steps to find where a main heap starts
  static constexpr uint64_t kCacheChecks = 16;  // for each block: they belong to one cache

  Verdict claim_instance(std::size_t index, const Enumeration& found) {
    const Instance& instance = instances[index];
    std::size_t first = arenas.size();
    Verdict verdict = list_arenas(instance, static_cast<uint32_t>(index), arenas);
    if (!verdict.fine()) return verdict;
    Params params = find_main_heap(instance, arenas[first]);
    mapped_known_ = mapped_known_ && params.found;
    mapped_expected += params.mapped_count;
    for (std::size_t i = first + 1; i < arenas.size(); ++i) {
      verdict = claim_thread_arena(space_, instance.layout, arenas[i], found);
      if (!verdict.fine()) return verdict;
    }
    const Arena& main_arena = arenas[first];
    if (!has_memory(instance.layout, main_arena)) return {};
    account_.got += system_mem(instance.layout, main_arena);
    return claim_break(space_, instance.layout, main_arena, params, found, account_);
  }

  // Called last: pages claimed earlier may look like regions from mmap.
  Verdict complete_main_arenas(const Enumeration& found) {
    Tops tops;
    bool contiguous = true;
    for (const Arena& arena : arenas) {
      const ArenaLayout& layout = instances[arena.instance].layout;
      if (arena.ordinal != 0 || !has_memory(layout, arena)) continue;
      tops.chunks[tops.count++] = arena.top(layout);
      contiguous = contiguous && is_contiguous(arena);
    }
    if (!contiguous) {
      Verdict verdict = claim_mapped_regions(space_, tops, found, account_);
      if (!verdict.fine()) return verdict;
    }
    for (std::size_t i = 0; i < tops.count; ++i)
      if (!claimed(found.blocks, tops.chunks[i]))
        return invalid("the main heap's top chunk was not reached", tops.chunks[i]);
    if (account_.adds_up()) return {};
    return invalid("the main heap's regions do not add up to what it got", account_.found);
  }

  // Finds mp_, or else the first start in the program break from which a walk succeeds.
  Params find_main_heap(const Instance& instance, const Arena& main_arena) {
    uint64_t top = main_arena.top(instance.layout);
    bool unused = !has_memory(instance.layout, main_arena);
    Budget proofs(kProofs);
    Params params = find_params(space_, instance, [&](const Params& candidate) {
      if (candidate.sbrk_base == 0) return unused || !is_contiguous(main_arena);
      return !unused && proves_main_heap(space_, instance, main_arena, candidate.sbrk_base, proofs);
    });
    if (params.found || unused) return params;
    for (const abi::Mapping& m : space_) {
      if ((m.flags & abi::kProgramBreak) == 0) continue;
      uint64_t limit = space_.anonymous_run(m.start).end;
      Budget budget = Budget::of_walks(limit - m.start, kMinChunk);
      uint64_t start = resume_after_gap(m.start, limit, top, budget);
      // A start after damaged chunks could pass for the whole heap if the account did not rule it
      // out.
      if (start != 0 && is_contiguous(main_arena) &&
          proves_main_heap(space_, instance, main_arena, start, proofs))
        params.sbrk_base = start;
      break;
    }
    return params;
  }

  Verdict claim_mapped(BlockMap& blocks) {
    if (mapped_known_ && mapped_expected == 0) return {};
    List<Range> stacks = running_stacks();
    MappedChunks mapped(space_, stacks, blocks, totals);
    Verdict verdict = mapped.claim_all(mapped_expected);
    if (mapped_known_) mapped.drop_surplus(mapped_expected);
    mapped_found = mapped.count;
    return verdict;
  }

  // Returns the stacks that threads run on, sorted and disjoint.
  List<Range> running_stacks() {
    List<Range> stacks(map_, threads_.running_count);
    for (std::size_t t = 0; t < threads_.running_count; ++t) {
      Range stack = libc::running_stack(space_, threads_.running[t]);
      if (stack.start < stack.end) stacks.push(stack);
    }
    sort(stacks, [](const Range& a, const Range& b) { return a.start < b.start; });
    std::size_t kept = 0;
    for (const Range& stack : stacks) {
      if (kept > 0 && stack.start <= stacks[kept - 1].end) {
        if (stacks[kept - 1].end < stack.end) stacks[kept - 1].end = stack.end;
      } else {
        stacks[kept++] = stack;
      }
    }
    while (stacks.size() > kept) stacks.pop();
    return stacks;
  }

  Verdict drop_free_lists(const Enumeration& found) {
    BlockMap& blocks = found.blocks;
    CachePlan first;
    Budget checks(kCacheChecks * (totals.blocks + kMaxCached));
    // Each copy of the library has a cache of its own in each thread.
    for (std::size_t i = 0; i < instance_count; ++i) {
      uint32_t least = i == 0 ? 1 : kFilled;
      CachePlan plan = plan_caches(space_, blocks, threads_, least, candidates_, checks);
      if (checks.empty())
        return invalid("too many blocks look like a thread's cache of free chunks", plan.offset);
      if (!plan.found) break;
      if (i == 0) first = plan;
      Verdict verdict = drop_caches(space_, blocks, totals, threads_, plan, checks);
      if (!verdict.fine()) return verdict;
    }
    Links expected = first.found ? first.format.links : Links::kMangled;
    for (const Arena& arena : arenas) {
      const ArenaLayout& layout = instances[arena.instance].layout;
      Verdict verdict = fastbins_.add(blocks, arena.address, layout, expected);
      if (!verdict.fine()) return verdict;
    }
    return fastbins_.drop_all(found);
  }

  const Space& space_;
  const libc::Threads& threads_;
  MapMemory map_;
  Fastbins fastbins_;
  List<Candidate> candidates_;
  bool mapped_known_ = true;
  Account account_;
};

}  // namespace reachscan::heaps::glibc
