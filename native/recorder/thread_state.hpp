// What the recorder keeps for each thread.
#pragma once

#include "recorder/kernel.hpp"
#include "recorder/stack_memo.hpp"
#include "recorder/tables.hpp"

namespace reachscan::recorder {

struct ThreadState {
  // Whether the thread is inside a function of the allocator already, or in a signal handler that
  // interrupted it there. What it allocates then is part of the outer call.
  bool is_inside = false;
  std::uint32_t names = 0;  // Recorder::names_ when `row` was found
  std::uint32_t row = 0;
  bool is_wanted = true;          // by --thread, under the name that it had then
  std::int64_t until_sample = 0;  // bytes to allocate before the next sample
  std::uint64_t random = 0;
  std::uint32_t closings = 0;  // Modules::closings() when `memo` was made
  StackMemo memo;
};

// Of the initial executable's set of thread-local storage: the first use allocates nothing.
extern constinit thread_local ThreadState thread_state __attribute__((tls_model("initial-exec")));

}  // namespace reachscan::recorder
