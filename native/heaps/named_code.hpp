// The code of an allocator with several object files, recognised by the variables that it names,
// and whether any thread is inside. Its locks need not be known: a thread that holds one is inside.
#pragma once

#include "heaps/code.hpp"
#include "heaps/functions.hpp"

namespace reachscan::heaps {

// The object files are adjacent; some of them do not name the variables. If a compiler has moved
// cold functions elsewhere, they form a part of their own.
constexpr uint64_t kMaxGap = 256 << 10;
constexpr uint64_t kMargin = 0x2000;

// The allocator calls functions in libraries: all code outside of the program. If it is linked into
// a program that needs no loader, they are in the program.
inline void add_libraries(const Space& space, abi::QuiesceHint& hint) {
  const abi::Mapping* program = find_program(space);
  if (program == nullptr) return hint.callees.add({0, ~0ull});
  hint.callees.add({0, program->start});
  uint64_t end = program->end;
  while (++program != space.end() && program->start == end && is_image(*program))
    end = program->end;
  hint.callees.add({end, ~0ull});
}

// In a program, the surrounding code does not belong to the allocator: there, only the functions
// that name the variables count, and any code in small gaps between two of them.
class NamedCode {
 public:
  NamedCode(const Space& space, uint32_t file, abi::QuiesceHint& hint)
      : hint_(hint), functions_(space, base_of(space, file)) {
    DynamicSection section;
    bool is_library =
        read_dynamic_section(space, base_of(space, file), section) && !section.of_executable;
    gap_ = is_library ? kMaxGap : kMaxGapInProgram;
    margin_ = is_library ? kMargin : 0;
  }

  // Instructions must be added in address order within each mapping.
  void add(uint64_t at) {
    if (part_.contains(at)) return;
    Range code = margin_ == 0 ? functions_.around(at) : Range{at, at};
    if (code.end == 0) code = {at - kNearby, at + kNearby};
    if (code.start < part_.start || code.start > part_.end + gap_) {
      finish();
      part_.start = code.start;
    }
    part_.end = code.end;
  }

  void finish() {
    if (part_.end == 0) return;
    hint_.text.add({part_.start - margin_, part_.end + margin_});
    hint_.unsettled.add({part_.start - margin_, part_.end + margin_});
  }

 private:
  static constexpr uint64_t kMaxGapInProgram = 0x400;
  static constexpr uint64_t kNearby = 0x100;  // static programs may lack the table of functions

  static uint64_t base_of(const Space& space, uint32_t file) {
    for (const abi::Mapping& m : space)
      if (m.file == file) return m.start;
    return 0;
  }

  abi::QuiesceHint& hint_;
  Functions functions_;
  uint64_t gap_ = 0, margin_ = 0;
  Range part_{0, 0};
};

inline void describe_code_naming(const Space& space, uint32_t file, Range variables,
                                 abi::QuiesceHint& hint) {
  NamedCode code(space, file, hint);
  each_naming(space, file, variables, [&code](uint64_t at) { code.add(at); });
  code.finish();
  add_libraries(space, hint);
}

// For a library of which it is not known what it does besides allocating.
inline void describe_library(const Space& space, uint32_t file, abi::QuiesceHint& hint) {
  for (const abi::Mapping& m : space) {
    if (!is_code(m) || m.file != file) continue;
    hint.text.add({m.start, m.end});
    hint.unsettled.add({m.start, m.end});
  }
  add_libraries(space, hint);
}

// A thread that sleeps, but not for a lock, has no operation half done, for example a thread of the
// allocator itself.
inline bool is_inside_named(const Space& space, const abi::Thread& thread,
                            const abi::QuiesceHint& hint) {
  if (hint.text.contains(thread.pc)) return true;
  return thread.sleep != abi::Sleep::kOtherwise && hint.callees.contains(thread.pc) &&
         abi::is_called_by<abi::TailCalls::kYes>(hint.unsettled, thread.frame(), ReadSpace{space});
}

// Returns whether no thread is inside.
inline bool is_quiet_named(const Space& space, const libc::Threads& threads,
                           const abi::QuiesceHint& hint) {
  for (std::size_t t = 0; t < threads.running_count; ++t)
    if (is_inside_named(space, threads.running[t], hint)) return false;
  return true;
}

}  // namespace reachscan::heaps
