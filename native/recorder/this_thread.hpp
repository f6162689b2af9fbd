// The state of the calling thread, wherever it is kept.
#pragma once

#ifdef REACHSCAN_INJECTED
#include "recorder/thread_states.hpp"
#else
#include "recorder/thread_local_state.hpp"
#endif

namespace reachscan::recorder {

// Marks the time in which the recorder has called a function that may take long: it must not be
// unmapped then.
class CallingOut {
 public:
  CallingOut() { count(1); }
  ~CallingOut() { count(-1u); }
  CallingOut(const CallingOut&) = delete;
  CallingOut& operator=(const CallingOut&) = delete;

 private:
  // Only the thread itself counts here, and a signal handler restores what it found, so no locked
  // instruction is needed.
  void count(std::uint32_t change) {
    std::uint32_t calls = __atomic_load_n(&thread_.calls_out, __ATOMIC_RELAXED);
    __atomic_store_n(&thread_.calls_out, calls + change, __ATOMIC_RELAXED);
  }

  Presence& thread_ = this_thread();
};

}  // namespace reachscan::recorder
