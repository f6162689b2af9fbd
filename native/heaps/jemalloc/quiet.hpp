// Whether any thread is inside the allocator, and what an outsider must watch to see it leave. Its
// locks need not be known: who holds one is inside.
#pragma once

#include "heaps/code.hpp"
#include "heaps/images.hpp"
#include "heaps/jemalloc/layout.hpp"

namespace reachscan::heaps::jemalloc {

// The structure that the root is part of begins a little before it.
constexpr uint64_t kBeforeRoot = 0x100;
// The allocator's object files lie together; some of them do not name the tree. Where a compiler
// has put functions that are rarely called elsewhere, they form a part of their own.
constexpr uint64_t kWidestGap = 256 << 10;
constexpr uint64_t kMargin = 0x2000;

// What the allocator calls is in libraries: all code around that of the program. If it is linked
// into a program that needs no loader, in the program.
inline void add_libraries(const Space& space, abi::QuiesceHint& hint) {
  Range program{~0ull, ~0ull};
  for (const abi::Mapping& m : space) {
    DynamicSection section;
    if (program.start == ~0ull && is_image(m) && read_dynamic_section(space, m.start, section) &&
        section.of_program)
      program = {m.start, m.end};
    if (program.end == m.start && is_image(m)) program.end = m.end;
  }
  hint.callees.add({0, program.start});
  if (program.end != ~0ull) hint.callees.add({program.end, ~0ull});
}

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
  add_libraries(space, hint);
}

// Who sleeps, but not for a lock, has nothing half done: a thread of the allocator's own, for one.
inline bool is_inside(const Space& space, const abi::Thread& thread, const abi::QuiesceHint& hint) {
  if (hint.text.contains(thread.pc)) return true;
  return thread.sleep != abi::Sleep::kOtherwise && hint.callees.contains(thread.pc) &&
         abi::is_called_by<abi::TailCalls::kYes>(hint.unsettled, {thread.pc, thread.sp},
                                                 ReadSpace{space});
}

}  // namespace reachscan::heaps::jemalloc
