// Whether any thread is inside the allocator, and what an outsider must watch to see it leave. Its
// locks need not be known: who holds one is inside.
#pragma once

#include "heaps/code.hpp"
#include "heaps/jemalloc/layout.hpp"

namespace reachscan::heaps::jemalloc {

// The structure that the root is part of begins a little before it.
constexpr uint64_t kBeforeRoot = 0x100;
// The allocator's object files lie together; some of them do not name the tree. Where a compiler
// has put functions that are rarely called elsewhere, they form a part of their own.
constexpr uint64_t kWidestGap = 256 << 10;
constexpr uint64_t kMargin = 0x2000;

inline void describe_code(const Space& space, const Instance& instance, abi::QuiesceHint& hint) {
  Range tree{instance.root - kBeforeRoot, instance.root + instance.tree.node_bytes()};
  Range part{0, 0};
  auto add = [&hint](Range code) {
    if (code.end == 0) return;
    hint.text.add({code.start - kMargin, code.end + kMargin});
    hint.unsettled.add({code.start - kMargin, code.end + kMargin});
  };
  each_naming(space, instance.file, tree, [&](uint64_t at) {
    if (part.end == 0 || at - part.end > kWidestGap) {
      add(part);
      part.start = at;
    }
    part.end = at;
  });
  add(part);
  hint.callees.add({0, ~0ull});
}

// Who sleeps, but not for a lock, has nothing half done: a thread of the allocator's own, for one.
inline bool is_inside(const Space& space, const abi::Thread& thread, const abi::QuiesceHint& hint) {
  if (hint.text.contains(thread.pc)) return true;
  return thread.sleep != abi::Sleep::kOtherwise &&
         abi::is_called_by(hint.text, {thread.pc, thread.sp}, ReadSpace{space});
}

}  // namespace reachscan::heaps::jemalloc
