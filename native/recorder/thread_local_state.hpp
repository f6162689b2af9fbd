// The states of threads where the recorder was loaded first: thread-local storage.
#pragma once

#include "instrumented/calls.hpp"
#include "recorder/thread_state.hpp"

namespace reachscan::recorder {

// In the initial TLS block: the first use allocates nothing.
extern constinit thread_local ThreadState thread_state __attribute__((tls_model("initial-exec")));

inline ThreadState& this_thread() { return thread_state; }

// Distinguishes threads that have the same state in succession: here none do.
inline std::uint32_t own_thread_id() { return 0; }

// The calls of instrumented functions that lead to a function with this stack pointer.
inline instrumented::CallSites instrumented_calls(std::uint64_t sp) {
  return instrumented::live_calls(sp);
}

}  // namespace reachscan::recorder
