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
  CallingOut() { count(1); }
  ~CallingOut() { count(-1u); }
  CallingOut(const CallingOut&) = delete;
  CallingOut& operator=(const CallingOut&) = delete;

 private:
  // Only the thread itself counts here, and a signal handler in between leaves what it has found:
  // the processor need not lock the word.
  void count(std::uint32_t change) {
    std::uint32_t calls = __atomic_load_n(&thread_.calls_out, __ATOMIC_RELAXED);
    __atomic_store_n(&thread_.calls_out, calls + change, __ATOMIC_RELAXED);
  }

  Presence& thread_ = this_thread();
};

}  // namespace reachscan::recorder
