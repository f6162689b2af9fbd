// Shape of glibc's thread descriptor (struct pthread) on x86_64. The thread pointer points to it.
// The sweeper and the helper both read it; reachscan/naming/places.py knows its size.
#pragma once

#include <cstdint>

namespace reachscan::libc {

// No release has a larger one.
constexpr std::uint64_t kDescriptorBytes = 0x900;
constexpr std::uint64_t kDescriptorAlignment = 64;

// Offsets of its fields. The descriptor holds its own address twice.
constexpr std::uint64_t kDescriptorAddress = 0;        // header.tcb
constexpr std::uint64_t kThreadVector = 8;             // header.dtv, of the thread-local storage
constexpr std::uint64_t kDescriptorAddressAgain = 16;  // header.self
constexpr std::uint64_t kPointerGuard = 0x30;          // header.pointer_guard
constexpr std::uint64_t kThreadNumber = 0x2d0;         // tid

}  // namespace reachscan::libc
