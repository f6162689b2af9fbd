// The shape of glibc's thread descriptor (struct pthread). It ends at the thread pointer, so its
// start depends on its size, which differs by release.
#pragma once

#include <cstdint>

#include "arch/address_space.hpp"

namespace reachscan::arch {

// The size in the release with the largest one.
constexpr std::uint64_t kDescriptorBytes = kWord == 8 ? 0x900 : 0x600;
// How far it extends below and above the thread pointer.
constexpr std::uint64_t kDescriptorBelow = kDescriptorBytes, kDescriptorAbove = 0;

// Offsets of its fields. All descriptors are in doubly linked lists.
constexpr std::uint64_t kNextDescriptor = 24 * kWord;  // list.next
constexpr std::uint64_t kThreadNumber = 26 * kWord;    // tid

// Offset of the same from the thread pointer in musl: 0, not known.
constexpr std::uint64_t kMuslThreadNumber = 0;

// Offset from the thread pointer: the dtv, the vector of thread-local storage. The descriptor
// contains no pointer guard.
constexpr std::uint64_t kThreadVector = 0;
constexpr bool kHasPointerGuard = false;
constexpr std::uint64_t kPointerGuard = 0;

// Returns whether there may be a descriptor at `at`. `word(address)` reads any word, and returns 0
// if it cannot.
template <typename Word>
bool is_descriptor(std::uint64_t at, Word word) {
  std::uint64_t links = at + kNextDescriptor;
  std::uint64_t next = word(links), previous = word(links + kWord);
  return next != 0 && previous != 0 && word(next + kWord) == links && word(previous) == links;
}

struct DescriptorShape {
  std::uint64_t bytes;           // 0 if unknown
  std::uint64_t thread_pointer;  // offset of the thread pointer from its start
};

// Derives the shape from the descriptor of a thread, given its thread pointer.
template <typename Word>
DescriptorShape descriptor_shape(std::uint64_t thread_pointer, Word word) {
  constexpr std::uint64_t kStep = 64, kMin = 128 * kWord;
  for (std::uint64_t bytes = kMin; bytes <= kDescriptorBytes; bytes += kStep)
    if (is_descriptor(thread_pointer - bytes, word)) return {bytes, bytes};
  return {0, 0};
}

// Recognising it takes words of other descriptors.
constexpr bool kDescriptorKnowsItself = false;

}  // namespace reachscan::arch
