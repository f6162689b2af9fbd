// Which processes have the same memory (vfork(), CLONE_VM).
#pragma once

#include <sys/types.h>

namespace reachscan::helper {

enum class Sharing { kNo, kUnknown, kYes };  // unknown: this kernel does not tell

// Of another user's process, it is not the other one's.
Sharing share_memory(pid_t one, pid_t other);

// Returns a process, but not `except`, of which at least so much is true; 0 if there is none, -1 if
// processes cannot be listed.
pid_t find_sharing(pid_t pid, pid_t except, Sharing least);

}  // namespace reachscan::helper
