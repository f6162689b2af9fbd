// Replaces walkers that do not support the program's word size: an allocator that is never present.
#pragma once

#include "heaps/heap.hpp"

namespace reachscan::heaps {

class NoHeap {
 public:
  static constexpr uint64_t kLinkBytes = 0;
  static constexpr bool kNeedsFine = false;

  template <typename... More>
  NoHeap(const Space&, const libc::Threads&, MapMemory, More...) {}

  static bool is_present() { return false; }
  static bool is_in(uint32_t) { return false; }
  static bool quiet(abi::QuiesceHint&) { return true; }
  static void describe(abi::QuiesceHint&) {}
  static bool interrupted(abi::QuiesceHint&) { return false; }
  static Verdict enumerate(BlockMap&, OnThreads, uint32_t) { return {}; }
  static std::size_t arena_count() { return 0; }
  static bool keeps_backtraces() { return false; }
  static Verdict backtraces(const List<uint64_t>&, NoteBacktrace, void*) { return {}; }
  static Warning warning() { return {}; }
  static void write_name(char (&name)[kNameLength]) { name[0] = 0; }
  template <typename Visit>
  static void each_variable(Visit) {}

  Totals totals;
};

static_assert(Walker<NoHeap>);

// Walkers that support 32-bit words declare it; all support 64-bit words.
template <typename W>
concept SupportsShortWords = requires {
  requires W::kSupportsShortWords;
};

template <typename W>
using IfKnown = std::conditional_t<kWord == 8 || SupportsShortWords<W>, W, NoHeap>;

}  // namespace reachscan::heaps
