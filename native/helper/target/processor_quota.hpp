// CPU quotas: a control group that has used up its quota is throttled until the next period.
#pragma once

#include <sys/types.h>

#include "helper/target/control_groups.hpp"

namespace reachscan::helper {

// Returns whether a group, or an ancestor, has a quota that does not apply to `ours` anyway.
bool has_other_quota(const ControlGroup& theirs, const ControlGroup& ours);

// Moves a clone into our own group if its target's group has a different quota: otherwise the
// sweeper would use up the target's quota. Returns false if that is impossible.
bool leave_quota(pid_t clone);

}  // namespace reachscan::helper
