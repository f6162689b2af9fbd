// Quotas of processor time: a control group that has used up its quota stands still until the next
// period begins.
#pragma once

#include <sys/types.h>

#include "helper/target/control_groups.hpp"

namespace reachscan::helper {

// Whether a group, or one around it, has a quota that does not apply to `ours` anyway.
bool has_other_quota(const ControlGroup& theirs, const ControlGroup& ours);

// Moves a clone into our own group if its target's has another quota: what the sweeper used of it,
// the target would lack. False if that cannot be done.
bool leave_quota(pid_t clone);

}  // namespace reachscan::helper
