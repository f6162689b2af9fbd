// Predicts how long a process would be stopped, before anything is stopped.
#pragma once

#include <sys/types.h>

#include <chrono>

#include "helper/capture/method.hpp"
#include "helper/stop/pause_limit.hpp"

namespace reachscan::helper {

// What this machine needs for the steps of a pause.
struct PauseCosts {
  double thread;        // to stop, read and release it, ns
  double small_page;    // to clone its entry of a page table, ns
  double huge_page;     // the same
  double byte_read;     // to copy it, ns
  double byte_tracked;  // to find out whether it was written to, ns
};

// What a process has that takes time.
struct PauseWork {
  double threads;
  double bytes;       // private, as they are cloned
  double huge_bytes;  // of these, in huge pages
  double shared_bytes;
};

std::chrono::nanoseconds expected_pause(Method method, const PauseWork& work,
                                        const PauseCosts& costs);

// Throws Failure(kOpenTarget, kPauseTooLong) if the limit leaves too little time for that
// method. Takes next to none itself unless it is close.
void require_short_pause(pid_t pid, Method method, const PauseLimit& limit);

}  // namespace reachscan::helper
