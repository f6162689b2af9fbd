// Shape of glibc's thread descriptor (struct pthread). It ends where the thread pointer points, so
// where it begins depends on its size, which differs by release.
#pragma once

#include <cstdint>

namespace reachscan::arch {

// No release has a larger one.
constexpr std::uint64_t kDescriptorBytes = 0x900;
// It lies within so many bytes below the thread pointer and above.
constexpr std::uint64_t kDescriptorBelow = kDescriptorBytes, kDescriptorAbove = 0;

// Offsets of its fields. All descriptors are linked in lists, in both directions.
constexpr std::uint64_t kNextDescriptor = 0xc0;  // list.next
constexpr std::uint64_t kThreadNumber = 0xd0;    // tid

// From the thread pointer: the dtv, of the thread-local storage. The pointer guard is none of its
// fields.
constexpr std::uint64_t kThreadVector = 0;
constexpr bool kHasPointerGuard = false;
constexpr std::uint64_t kPointerGuard = 0;

// Whether there may be a descriptor at `at`. `word(address)` reads any word, 0 if it cannot.
template <typename Word>
bool is_descriptor(std::uint64_t at, Word word) {
  std::uint64_t links = at + kNextDescriptor;
  std::uint64_t next = word(links), previous = word(links + 8);
  return next != 0 && previous != 0 && word(next + 8) == links && word(previous) == links;
}

struct DescriptorShape {
  std::uint64_t bytes;           // 0 if unknown
  std::uint64_t thread_pointer;  // how far above its beginning the thread pointer points
};

// As a thread's descriptor shows, whose thread pointer is given.
template <typename Word>
DescriptorShape descriptor_shape(std::uint64_t thread_pointer, Word word) {
  constexpr std::uint64_t kStep = 64, kLeast = 0x400;
  for (std::uint64_t bytes = kLeast; bytes <= kDescriptorBytes; bytes += kStep)
    if (is_descriptor(thread_pointer - bytes, word)) return {bytes, bytes};
  return {0, 0};
}

// Others' words tell it.
constexpr bool kDescriptorKnowsItself = false;

}  // namespace reachscan::arch
