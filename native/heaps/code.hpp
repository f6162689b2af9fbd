// Where an allocator's own code is, and how its stack and code are read.
#pragma once

#include "arch/code.hpp"
#include "heaps/heap.hpp"

namespace reachscan::heaps {

// What abi::is_inside() and its like read by.
struct ReadSpace {
  const Space& space;
  bool operator()(uint64_t address, void* buffer, std::size_t length) const {
    if (!space.readable(address, length)) return false;
    __builtin_memcpy(buffer, reinterpret_cast<const void*>(address), length);
    return true;
  }
};

inline bool is_code(const abi::Mapping& m) {
  constexpr uint32_t kCode = wire::kRead | wire::kExecute;
  return (m.perms & kCode) == kCode;
}

// Calls visit(address) for the instructions of a module that name something in `variables`.
template <typename Visit>
void each_naming(const Space& space, uint32_t file, Range variables, Visit visit) {
  for (const abi::Mapping& m : space) {
    if (!is_code(m) || m.file != file) continue;
    for (uint64_t at = m.start; at + arch::kNamingBytes <= m.end; at += arch::kCodeAlignment)
      if (variables.contains(arch::named_address(at))) visit(at);
  }
}

// Calls visit(address) for the instructions of a module that read or write something in
// `variables`, or name it.
template <typename Visit>
void each_using(const Space& space, uint32_t file, Range variables, Visit visit) {
  for (const abi::Mapping& m : space) {
    if (!is_code(m) || m.file != file) continue;
    for (uint64_t at = m.start; at + arch::kNamingBytes <= m.end; at += arch::kCodeAlignment)
      if (variables.contains(arch::used_address(at))) visit(at);
  }
}

// Whether signal handlers that have not returned interrupted an allocator. A stack holds traces of
// handlers that have: only where the heap is not consistent does that say anything.
inline bool any_interrupted(const Space& space, const libc::Threads& threads,
                            abi::QuiesceHint& hint) {
  for (std::size_t t = 0; t < threads.running_count && hint.interrupted == 0; ++t)
    hint.interrupted =
        abi::is_interrupted_inside(hint.text, threads.running[t].sp, ReadSpace{space});
  return hint.interrupted != 0;
}

}  // namespace reachscan::heaps
