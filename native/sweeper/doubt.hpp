// A second look at what the program can reach, for words that are no pointers but might stand for
// some: equal to a pointer but for tags in the high bits, one past the end of a block, or a pointer
// as setjmp() stores it. Blocks that only such words point to, and all that hangs below them, are
// only possibly leaked; and so are those that may be a stack for signal handlers.
#pragma once

#include "sweeper/collect.hpp"
#include "sweeper/roots.hpp"
#include "sweeper/signal_stacks.hpp"

namespace reachscan::sweeper {

class SecondLook {
 public:
  SecondLook(const heaps::Space& space, BlockMap& blocks, std::size_t unmarked)
      : space_(space), blocks_(blocks), unmarked_(unmarked) {
    for (uint32_t reason : kLookedFor) list_of(reason) = List<uint64_t>(map_memory, unmarked);
    find_pointer_guard();
  }

  // Looks through everything reachable, and at what is not.
  void look(Roots& roots) {
    const heaps::Range hull = blocks_.hull();
    const uint64_t guard = guard_;
    // Cheap, and no word that note() would take fails it.
    auto test = [=](uint64_t value) {
      uint64_t hidden = unmangled(value, guard), untagged = value << kTagBits >> kTagBits;
      return static_cast<unsigned>(hidden - hull.start < hull.end - hull.start) |
             (static_cast<unsigned>(untagged - hull.start <= hull.end - hull.start) &
              static_cast<unsigned>(value % heaps::kGranule == 8 || value >> (64 - kTagBits) != 0 ||
                                    value % heaps::kPage == 0));
    };
    auto consider = [&](uint64_t start, uint64_t end) {
      each_word_that(space_, start, end, test, [this](uint64_t value) { note(value); });
    };
    roots.each_part(consider);
    roots.each_register_word([this](uint64_t, uint64_t value) { note(value); });
    blocks_.each_marked([&](uint64_t block) { consider(block, blocks_.end_of(block)); });
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
  static constexpr unsigned kTagBits = 16;
  static constexpr uint64_t kFirstKernelAddress = 1ull << 47;

  static constexpr uint32_t kLookedFor[] = {wire::kOnePastTheEnd, wire::kTagged, wire::kMangled,
                                            wire::kSignalStack};

  List<uint64_t>& list_of(uint32_t reason) { return doubtful_[reason]; }

  // glibc xors stack and frame pointers in a jmp_buf with a secret that is in each thread's
  // descriptor (header.pointer_guard), and rotates them.
  void find_pointer_guard() {
    constexpr uint64_t kPointerGuard = 0x30;
    const auto* threads = reinterpret_cast<const abi::Thread*>(control()->threads);
    for (std::size_t t = 0; t < control()->thread_count && guard_ == 0; ++t) {
      uint64_t at = threads[t].thread_pointer + kPointerGuard;
      if (space_.readable(at, 8)) guard_ = heaps::word(at);
    }
  }

  static uint64_t unmangled(uint64_t value, uint64_t guard) {
    return (value >> 17 | value << 47) ^ guard;
  }

  void note(uint64_t value) {
    uint64_t hidden = unmangled(value, guard_);
    if (guard_ != 0 && blocks_.may_point(hidden))
      if (uint64_t block = blocks_.block_of(hidden)) add(block, wire::kMangled);
    if (value >> (64 - kTagBits) == 0) {
      if (uint64_t block = block_ending_at(value)) add(block, wire::kOnePastTheEnd);
      return;
    }
    uint64_t untagged = value << kTagBits >> kTagBits;
    if (untagged >= kFirstKernelAddress || !blocks_.may_point(untagged)) return;
    if (uint64_t block = blocks_.block_of(untagged)) add(block, wire::kTagged);
  }

  void add(uint64_t block, uint32_t reason) {
    if (blocks_.mark(block) != 0) list_of(reason).push(block);
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
  uint64_t guard_ = 0;
  List<uint64_t> doubtful_[wire::kMangled + 1];  // marked blocks, by reason
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
