// The states of threads where the recorder came too late for thread-local storage: a table by
// thread pointer. A new thread at the same address takes over the state of an exited one.
#pragma once

#include "arch/frames.hpp"
#include "instrumented/calls.hpp"
#include "recorder/kernel.hpp"
#include "recorder/thread_state.hpp"

namespace reachscan::recorder {

class ThreadStates {
 public:
  static constexpr std::uint32_t kCount = kMaxThreadStates;
  static constexpr std::uint64_t kBytes = kCount * (sizeof(std::uint64_t) + sizeof(ThreadState));

  // Expects zeroed memory of kBytes. `table` is where the helper looks.
  void place(void* memory, ThreadTable& table) {
    keys_ = static_cast<std::uint64_t*>(memory);
    states_ = reinterpret_cast<ThreadState*>(keys_ + kCount);
    table_ = &table;
    table = {reinterpret_cast<std::uint64_t>(keys_), reinterpret_cast<std::uint64_t>(states_),
             sizeof(ThreadState), kCount, 0};
    // A thread without a state appears to be inside, and records nothing.
    none_.is_inside = 1;
  }

  ThreadState& find() {
    std::uint64_t thread = arch::thread_pointer();
    std::uint32_t at = ThreadTable::row_of(thread, kCount);
    for (std::uint32_t probe = 0; probe < ThreadTable::kMaxProbes;
         ++probe, at = (at + 1) % kCount) {
      std::uint64_t key = __atomic_load_n(&keys_[at], __ATOMIC_RELAXED);
      if (key == thread) return states_[at];
      if (key == 0 && __atomic_compare_exchange_n(&keys_[at], &key, thread, false, __ATOMIC_RELAXED,
                                                  __ATOMIC_RELAXED))
        return states_[at];
    }
    __atomic_store_n(&table_->overflowed, 1, __ATOMIC_RELAXED);
    return none_;
  }

 private:
  std::uint64_t* keys_ = nullptr;
  ThreadState* states_ = nullptr;
  ThreadTable* table_ = nullptr;
  ThreadState none_;
};

extern constinit ThreadStates thread_states;

inline ThreadState& this_thread() { return thread_states.find(); }

// Distinguishes threads that have the same state in succession.
std::uint32_t own_thread_id();

// If instrumented functions reported their calls at all, it was to another recorder.
inline instrumented::CallSites instrumented_calls(std::uint64_t) { return {}; }

}  // namespace reachscan::recorder
