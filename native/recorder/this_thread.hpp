// The state of the calling thread, wherever it is kept.
#pragma once

#ifdef REACHSCAN_INJECTED
#include "recorder/thread_states.hpp"
#else
#include "recorder/thread_local_state.hpp"
#endif

namespace reachscan::recorder {

// While the recorder has called a function that may take its time: it may not be unmapped then.
class CallingOut {
 public:
  CallingOut() { __atomic_fetch_add(&thread_.calls_out, 1, __ATOMIC_RELAXED); }
  ~CallingOut() { __atomic_fetch_sub(&thread_.calls_out, 1, __ATOMIC_RELAXED); }
  CallingOut(const CallingOut&) = delete;
  CallingOut& operator=(const CallingOut&) = delete;

 private:
  Presence& thread_ = this_thread();
};

}  // namespace reachscan::recorder
