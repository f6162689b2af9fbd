// Where the allocator's code is. Its lock need not be known: a thread that holds it is inside. A
// thread that waits for it has changed nothing yet, except the header of a block that it is
// freeing.
#pragma once

#include <sys/syscall.h>

#include "arch/code.hpp"
#include "heaps/code.hpp"
#include "heaps/musl/layout.hpp"

namespace reachscan::heaps::musl {

// The allocator's few functions are adjacent, and each uses the context. No gap between two uses is
// wider than this, and a single use may be a coincidence.
constexpr uint64_t kMaxGap = 0x1000;
constexpr uint64_t kMargin = 0x300;
constexpr unsigned kMinUses = 2;

// Adds the range from the first to the last use, with a small margin. In a static program any
// function may be next to the allocator's, and a thread may sleep there; the allocator's own code
// makes no system call except brk.
inline void add_part(const Space& space, Range part, abi::QuiesceHint& hint) {
  uint64_t start = part.start - kMargin, end = part.end + kMargin;
  for (uint64_t at = start; at < end; at += arch::kCodeAlignment) {
    arch::SystemCall call = arch::system_call_at(at, ReadSpace{space});
    if (!call.made || (call.known && call.number == SYS_brk)) continue;
    hint.text.add({start, at});
    start = at + 1;
  }
  hint.text.add({start, end});
}

inline void describe_code(const Space& space, const Context& context, abi::QuiesceHint& hint) {
  Range part{0, 0};
  unsigned uses = 0;
  auto close = [&] {
    if (uses >= kMinUses) add_part(space, part, hint);
    uses = 0;
  };
  each_using(space, context.file, {context.address, context.address + kContextBytes},
             [&](uint64_t at) {
               if (uses == 0 || at - part.end > kMaxGap) {
                 close();
                 part.start = at;
               }
               part.end = at;
               ++uses;
             });
  close();
  // Its system calls are made by functions of the library.
  for (const abi::Mapping& m : space)
    if (is_code(m) && m.file == context.file) hint.callees.add({m.start, m.end});
}

inline bool is_inside(const Space& space, const abi::Thread& thread, const abi::QuiesceHint& hint) {
  if (hint.text.contains(thread.pc)) return true;
  return thread.sleep == abi::Sleep::kNoOrUnknown && hint.callees.contains(thread.pc) &&
         abi::is_called_by(hint.text, thread.frame(), ReadSpace{space});
}

}  // namespace reachscan::heaps::musl
