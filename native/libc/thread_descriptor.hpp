// What glibc's thread descriptors (struct pthread) have in common on all processors; the rest is in
// arch/thread_descriptor.hpp.
#pragma once

#include "arch/thread_descriptor.hpp"

namespace reachscan::libc {

using arch::kDescriptorBytes;
using arch::kThreadNumber;

constexpr std::uint64_t kDescriptorAlignment = 64;

}  // namespace reachscan::libc
