// The seccomp filters of the target's threads. Each thread has its own.
#pragma once

#include <sys/types.h>

#include <vector>

#include "helper/stop/filter_program.hpp"

namespace reachscan::helper {

bool is_filtered(pid_t pid, pid_t tid);
bool has_filtered_thread(pid_t pid);

// Returns whether the kernel may show us a thread's filters. That takes CAP_SYS_ADMIN and no filter
// of our own.
bool may_read_filters();

// Returns whether all filters of a stopped thread that we trace allow each of the calls. False,
// too, if a filter cannot be read.
bool filters_allow(pid_t tid, const std::vector<PlannedCall>& calls);

// Sets ptrace options for a process that dies with us. Where the kernel lets us, its filters no
// longer apply to it. Returns false, with errno, if that failed.
bool set_options_unfiltered(pid_t tid, long options);

}  // namespace reachscan::helper
