// Where the allocator's code is. Its lock need not be known: who holds it is inside. Who waits for
// it has changed nothing yet, except for the header of a block that is being freed.
#pragma once

#include "heaps/code.hpp"
#include "heaps/musl/layout.hpp"

namespace reachscan::heaps::musl {

// The allocator's few functions lie together, and each uses the context. No gap between two uses is
// wider than this, and one use alone may be a chance.
constexpr uint64_t kWidestGap = 0x1000;
constexpr uint64_t kMargin = 0x300;
constexpr unsigned kLeastUses = 2;

inline void describe_code(const Space& space, const Context& context, abi::QuiesceHint& hint) {
  Range part{0, 0};
  unsigned uses = 0;
  auto close = [&] {
    if (uses >= kLeastUses) hint.text.add({part.start - kMargin, part.end + kMargin});
    uses = 0;
  };
  each_using(space, context.file, {context.address, context.address + kContextBytes},
             [&](uint64_t at) {
               if (uses == 0 || at - part.end > kWidestGap) {
                 close();
                 part.start = at;
               }
               part.end = at;
               ++uses;
             });
  close();
  // Its system calls are those of the library.
  for (const abi::Mapping& m : space)
    if (is_code(m) && m.file == context.file) hint.callees.add({m.start, m.end});
}

inline bool is_inside(const Space& space, const abi::Thread& thread, const abi::QuiesceHint& hint) {
  if (hint.text.contains(thread.pc)) return true;
  return thread.sleep == abi::Sleep::kNoOrUnknown && hint.callees.contains(thread.pc) &&
         abi::is_called_by(hint.text, {thread.pc, thread.sp}, ReadSpace{space});
}

}  // namespace reachscan::heaps::musl
