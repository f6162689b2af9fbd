// The shape of glibc's thread descriptor (struct pthread), which starts at the thread pointer. Both
// the sweeper and the helper read it; reachscan/naming/places.py knows its size.
#pragma once

#include <cstdint>

#include "arch/address_space.hpp"

namespace reachscan::arch {

// The size in the release with the largest one.
constexpr std::uint64_t kDescriptorBytes = kWord == 8 ? 0x900 : 0x480;
// How far it extends below and above the thread pointer.
constexpr std::uint64_t kDescriptorBelow = 0, kDescriptorAbove = kDescriptorBytes;

// Offsets of its fields. The descriptor contains its own address twice.
constexpr std::uint64_t kDescriptorAddress = 0;                     // header.tcb
constexpr std::uint64_t kDescriptorAddressAgain = 2 * kWord;        // header.self
constexpr std::uint64_t kThreadNumber = kWord == 8 ? 0x2d0 : 0x68;  // tid

// Offset of the same from the thread pointer in musl.
constexpr std::uint64_t kMuslThreadNumber = 0x30;

// Offsets from the thread pointer: header.dtv, the vector of thread-local storage, and
// header.pointer_guard.
constexpr std::uint64_t kThreadVector = kWord;
constexpr bool kHasPointerGuard = true;
constexpr std::uint64_t kPointerGuard = kWord == 8 ? 0x30 : 0x18;

// Returns whether there may be a descriptor at `at`. `word(address)` reads a word.
template <typename Word>
bool is_descriptor(std::uint64_t at, Word word) {
  return word(at + kDescriptorAddress) == at && word(at + kDescriptorAddressAgain) == at;
}

struct DescriptorShape {
  std::uint64_t bytes;           // upper bound; 0 if unknown
  std::uint64_t thread_pointer;  // offset of the thread pointer from its start
};

// Derives the shape from the descriptor of a thread, given its thread pointer: here all are alike.
template <typename Word>
DescriptorShape descriptor_shape(std::uint64_t, Word) {
  return {kDescriptorBytes, 0};
}

// Its own words suffice to recognise it.
constexpr bool kDescriptorKnowsItself = true;

}  // namespace reachscan::arch
