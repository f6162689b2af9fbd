// A second look at what the program can reach, for pointers in disguise. Blocks that only such
// words point to, and all that hangs below them, are only possibly leaked; and so are those that
// may be a stack for signal handlers.
#pragma once

#include "sweeper/collect.hpp"
#include "sweeper/crew.hpp"
#include "sweeper/disguise.hpp"
#include "sweeper/roots.hpp"
#include "sweeper/signal_stacks.hpp"
#include "sweeper/spin_lock.hpp"

namespace reachscan::sweeper {

class SecondLook {
 public:
  SecondLook(const heaps::Space& space, BlockMap& blocks, std::size_t unmarked)
      : space_(space),
        blocks_(blocks),
        unmarked_(unmarked),
        filter_(blocks.hulls(), find_pointer_guard(space)) {
    for (uint32_t reason : kLookedFor) list_of(reason) = List<uint64_t>(map_memory, unmarked);
  }

  // Looks through everything reachable, and at what is not.
  void look(Roots& roots) {
    roots.each_part([&](uint64_t start, uint64_t end) {
      each_word_that(space_, start, end, filter_,
                     [this](uint64_t, uint64_t value) { note(value); });
    });
    roots.each_register_word([this](uint64_t, uint64_t value) { note(value); });
    uint64_t bytes = 0;
    for (const heaps::Region& region : blocks_.regions) bytes += region.end - region.start;
    auto look = [](void* self) { static_cast<SecondLook*>(self)->look_through_heap(); };
    on_threads(bytes, look, this);
    follow();
    SignalStacks stacks(space_, blocks_, unmarked_);
    stacks.each(control()->signal_stacks,
                [this](uint64_t block) { add(block, wire::kSignalStack); });
    follow();
  }

  // Sends first what is leaked for certain, then the rest with the reasons for doubt.
  void collect(LeakWriter& writer) {
    collect_leaks(space_, blocks_, writer);
    for (uint32_t reason : kLookedFor) {
      if (list_of(reason).empty()) continue;
      for (uint64_t block : list_of(reason)) blocks_.clear_mark(block);
      auto first = static_cast<uint32_t>(writer.leaks.blocks);
      collect_leaks(space_, blocks_, writer);
      auto count = static_cast<uint32_t>(writer.leaks.blocks) - first;
      Record(wire::kDoubts).u32(1).u32(first).u32(count).u32(reason).send();
    }
  }

 private:
  static constexpr uint64_t kFirstKernelAddress = 1ull << 47;

  static constexpr uint32_t kLookedFor[] = {wire::kOnePastTheEnd, wire::kTagged, wire::kMangled,
                                            wire::kSignalStack};

  static constexpr uint64_t kStretch = 4 << 20;  // bytes of the heap that a thread takes at once

  // Straight through, one stretch after the other: going from block to block would take longer than
  // reading it all. To be called on each thread.
  void look_through_heap() {
    auto take = [this] { return __atomic_fetch_add(&stretches_taken_, 1, __ATOMIC_RELAXED); };
    uint64_t mine = take(), stretch = 0;
    for (const heaps::Region& region : blocks_.regions) {
      for (uint64_t start = heaps::align_up(region.start, 8); start < region.end;
           start += kStretch, ++stretch) {
        if (stretch != mine) continue;
        look_through(start, region.end - start < kStretch ? region.end : start + kStretch);
        mine = take();
      }
    }
  }

  void look_through(uint64_t start, uint64_t end) {
    each_word_that(space_, start, end, filter_, [this](uint64_t at, uint64_t value) {
      note(value, [this, at] { return is_in_reach(at); });
    });
  }

  List<uint64_t>& list_of(uint32_t reason) { return doubtful_[reason]; }

  // It is in each thread's descriptor (header.pointer_guard).
  static uint64_t find_pointer_guard(const heaps::Space& space) {
    constexpr uint64_t kPointerGuard = 0x30;
    const auto* threads = reinterpret_cast<const abi::Thread*>(control()->threads);
    for (std::size_t t = 0; t < control()->thread_count; ++t) {
      uint64_t at = threads[t].thread_pointer + kPointerGuard;
      if (space.readable(at, 8) && heaps::word(at) != 0) return heaps::word(at);
    }
    return 0;
  }

  bool is_in_reach(uint64_t slot) const {
    uint64_t block = blocks_.block_of(slot);
    return block != 0 && blocks_.is_marked(block);
  }

  void note(uint64_t value) {
    note(value, [] { return true; });
  }

  // `counts` tells whether what stands where the value was found counts. It is asked last.
  template <typename Counts>
  void note(uint64_t value, Counts counts) {
    auto doubt = [&](uint64_t block, uint32_t reason) {
      if (block != 0 && !blocks_.is_marked(block) && counts()) add(block, reason);
    };
    uint64_t hidden = filter_.unmangled(value);
    if (filter_.knows_guard() && blocks_.may_point(hidden))
      doubt(blocks_.block_of(hidden), wire::kMangled);
    uint64_t untagged = DisguiseFilter::untagged(value);
    if (untagged == value) {
      doubt(block_ending_at(value), wire::kOnePastTheEnd);
    } else if (untagged < kFirstKernelAddress && blocks_.may_point(untagged)) {
      doubt(blocks_.block_of(untagged), wire::kTagged);
    }
  }

  // Whichever reason is found first is given. Not often called, so that a lock costs nothing.
  void add(uint64_t block, uint32_t reason) {
    SpinLock::Guard guard(lock_);
    if (blocks_.mark<true>(block) != 0) list_of(reason).push(block);
  }

  // A block ends inside the granule where the next one's size word is, or with its own mapping: no
  // other block can begin there.
  uint64_t block_ending_at(uint64_t value) const {
    if (value % heaps::kGranule != 8 && value % heaps::kPage != 0) return 0;
    if (!blocks_.may_point(value - 1) || blocks_.block_of(value) != 0) return 0;
    uint64_t block = blocks_.block_of(value - 1);
    return block != 0 && blocks_.end_of(block) == value ? block : 0;
  }

  // What a doubtful block points to is as doubtful as itself.
  void follow() {
    std::size_t done[wire::kMangled + 1] = {};
    for (bool more = true; more;) {
      more = false;
      for (uint32_t reason : kLookedFor) {
        for (std::size_t& next = done[reason]; next < list_of(reason).size(); more = true) {
          uint64_t block = list_of(reason)[next++];
          each_word(space_, block, blocks_.end_of(block), [&](uint64_t, uint64_t value) {
            if (blocks_.may_point(value))
              if (uint64_t child = blocks_.block_of(value)) add(child, reason);
            note(value);
          });
        }
      }
    }
  }

  const heaps::Space& space_;
  BlockMap& blocks_;
  std::size_t unmarked_;
  DisguiseFilter filter_;
  List<uint64_t> doubtful_[wire::kMangled + 1];  // marked blocks, by reason
  uint64_t stretches_taken_ = 0;
  SpinLock lock_;
};

// Sends all leaks. `roots` and `blocks` are marked.
inline void collect_all_leaks(const heaps::Space& space, Roots& roots, BlockMap& blocks,
                              LeakWriter& writer) {
  std::size_t unmarked = 0;
  blocks.each_unmarked([&](uint64_t) { ++unmarked; });
  if (unmarked == 0) return;
  SecondLook second(space, blocks, unmarked);
  second.look(roots);
  second.collect(writer);
}

}  // namespace reachscan::sweeper
