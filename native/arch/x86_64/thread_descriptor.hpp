// Shape of glibc's thread descriptor (struct pthread). The thread pointer points to it. The sweeper
// and the helper both read it; reachscan/naming/places.py knows its size.
#pragma once

#include <cstdint>

#include "arch/address_space.hpp"

namespace reachscan::arch {

// No release has a larger one.
constexpr std::uint64_t kDescriptorBytes = kWord == 8 ? 0x900 : 0x480;
// It lies within so many bytes below the thread pointer and above.
constexpr std::uint64_t kDescriptorBelow = 0, kDescriptorAbove = kDescriptorBytes;

// Offsets of its fields. The descriptor holds its own address twice.
constexpr std::uint64_t kDescriptorAddress = 0;                     // header.tcb
constexpr std::uint64_t kDescriptorAddressAgain = 2 * kWord;        // header.self
constexpr std::uint64_t kThreadNumber = kWord == 8 ? 0x2d0 : 0x68;  // tid

// From the thread pointer: header.dtv, of the thread-local storage, and header.pointer_guard.
constexpr std::uint64_t kThreadVector = kWord;
constexpr bool kHasPointerGuard = true;
constexpr std::uint64_t kPointerGuard = kWord == 8 ? 0x30 : 0x18;

// Whether there may be a descriptor at `at`. `word(address)` reads its words.
template <typename Word>
bool is_descriptor(std::uint64_t at, Word word) {
  return word(at + kDescriptorAddress) == at && word(at + kDescriptorAddressAgain) == at;
}

struct DescriptorShape {
  std::uint64_t bytes;           // at most; 0 if unknown
  std::uint64_t thread_pointer;  // how far above its beginning the thread pointer points
};

// As a thread's descriptor shows, whose thread pointer is given: here all are alike.
template <typename Word>
DescriptorShape descriptor_shape(std::uint64_t, Word) {
  return {kDescriptorBytes, 0};
}

// It can be told by its own words alone.
constexpr bool kDescriptorKnowsItself = true;

}  // namespace reachscan::arch
