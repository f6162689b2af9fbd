// What a seccomp filter answers to a system call of which not every argument is known.
#pragma once

#include <linux/filter.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace reachscan::helper {

struct PlannedCall {
  std::uint32_t number;
  std::array<std::optional<std::uint64_t>, 6> arguments{};  // empty: not known yet
};

// Returns whether the filter allows the call, whatever the unknown arguments are and from wherever
// it is made. A call that is allowed and logged does not count. Source of the format: Linux,
// Documentation/userspace-api/seccomp_filter.rst and Documentation/networking/filter.rst.
bool allows(const std::vector<sock_filter>& program, const PlannedCall& call);

}  // namespace reachscan::helper
