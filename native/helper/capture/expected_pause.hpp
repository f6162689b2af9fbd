// Predicts how long a process would be stopped, before anything is stopped.
#pragma once

#include <sys/types.h>

#include <chrono>

#include "helper/capture/method.hpp"
#include "helper/stop/pause_limit.hpp"

namespace reachscan::helper {

// The costs of the steps of a pause on this machine.
struct PauseCosts {
  double thread;        // to stop, read and release one, ns
  double small_page;    // to clone its page table entry, ns
  double huge_page;     // the same, ns
  double byte_read;     // to copy one, ns
  double byte_tracked;  // to find out whether one was written to, ns
};

// The properties of a process that determine its pause.
struct PauseWork {
  double threads;
  double bytes;       // private, as they are cloned
  double huge_bytes;  // of these, in huge pages
  double shared_bytes;
};

std::chrono::nanoseconds expected_pause(Method method, const PauseWork& work,
                                        const PauseCosts& costs);

// Throws Failure(kOpenTarget, kPauseTooLong) if the limit leaves too little time for the method.
// Takes hardly any time itself unless it is a close call.
void require_short_pause(pid_t pid, Method method, const PauseLimit& limit);

}  // namespace reachscan::helper
