// Where an allocator's own code is, and how its stack and code are read.
#pragma once

#include "arch/code.hpp"
#include "heaps/heap.hpp"
#include "heaps/images.hpp"

namespace reachscan::heaps {

// The reader for abi::is_inside() and related functions.
struct ReadSpace {
  const Space& space;
  bool operator()(uint64_t address, void* buffer, std::size_t length) const {
    if (!space.readable(address, length) && !is_kernel_code(address, length)) return false;
    __builtin_memcpy(buffer, reinterpret_cast<const void*>(address), length);
    return true;
  }

  // 32-bit programs make system calls and return from signal handlers in code provided by the
  // kernel.
  bool is_kernel_code(uint64_t address, std::size_t length) const {
    constexpr uint32_t kCode = wire::kRead | wire::kExecute;
    const abi::Mapping* m = kWord == 4 ? space.find(address) : nullptr;
    return m != nullptr && (m->flags & abi::kKernelOwned) != 0 && (m->perms & kCode) == kCode &&
           length <= m->end - address;
  }
};

inline bool is_code(const abi::Mapping& m) {
  constexpr uint32_t kCode = wire::kRead | wire::kExecute;
  return (m.perms & kCode) == kCode;
}

// Returns whether the four bytes at `at` are the displacement of a `lea` with a register other than
// the stack pointer. Small distances occur in all code, but rarely in this instruction.
inline bool is_distance_of_lea(uint64_t at) {
  uint8_t operand = load<uint8_t>(at - 1);
  return load<uint8_t>(at - 2) == 0x8d && operand >> 6 == 2 && (operand & 7) != 4;
}

// Such code names a variable by its address, or by its distance from the module's global offset
// table. Calls visit(address) for whatever looks like one of `variables`.
template <typename Visit>
void each_naming_from_table(const Space& space, uint32_t file, Range variables, Visit visit) {
  uint64_t base = 0;
  for (const abi::Mapping& m : space) {
    DynamicSection section;
    if (m.file == file && is_image(m) && read_dynamic_section(space, m.start, section))
      base = section.addresses;
  }
  for (const abi::Mapping& m : space) {
    if (!is_code(m) || m.file != file) continue;
    for (uint64_t at = m.start + 2; at + kWord <= m.end; ++at) {
      bool near = variables.contains(wrapped(base + word(at))) && is_distance_of_lea(at);
      if (near || variables.contains(word(at))) visit(at);
    }
  }
}

// Calls visit(address) for the instructions of a module that name something in `variables`.
template <typename Visit>
void each_naming(const Space& space, uint32_t file, Range variables, Visit visit) {
  if (arch::kNamesFromTable) return each_naming_from_table(space, file, variables, visit);
  for (const abi::Mapping& m : space) {
    if (!is_code(m) || m.file != file) continue;
    for (uint64_t at = m.start; at + arch::kNamingBytes <= m.end; at += arch::kCodeAlignment)
      if (variables.contains(arch::named_address(at))) visit(at);
  }
}

// Calls visit(address) for the instructions of a module that read, write or name something in
// `variables`.
template <typename Visit>
void each_using(const Space& space, uint32_t file, Range variables, Visit visit) {
  for (const abi::Mapping& m : space) {
    if (!is_code(m) || m.file != file) continue;
    for (uint64_t at = m.start; at + arch::kNamingBytes <= m.end; at += arch::kCodeAlignment)
      if (variables.contains(arch::used_address(at))) visit(at);
  }
}

// Returns whether signal handlers that have not returned interrupted an allocator. A stack also
// holds traces of handlers that have, so this is conclusive only if the heap is inconsistent.
inline bool any_interrupted(const Space& space, const libc::Threads& threads,
                            abi::QuiesceHint& hint) {
  for (std::size_t t = 0; t < threads.running_count && hint.interrupted == 0; ++t)
    hint.interrupted =
        abi::is_interrupted_inside(hint.text, threads.running[t].sp, ReadSpace{space});
  return hint.interrupted != 0;
}

}  // namespace reachscan::heaps
