// What the recorder keeps for each thread.
#pragma once

#include "recorder/injection.hpp"
#include "recorder/kernel.hpp"
#include "recorder/stack_memo.hpp"
#include "recorder/tables.hpp"

namespace reachscan::recorder {

// `is_inside` also means that what the thread allocates is part of the outer call: it is already
// inside a function of the allocator, or in a signal handler that interrupted it there.
struct ThreadState : Presence {
  std::uint32_t names = 0;   // Recorder::names_ when `row` was found
  std::uint32_t number = 0;  // own_thread_id() then
  std::uint32_t row = 0;
  bool is_wanted = true;  // according to --thread, under its name at that time
  // Bytes to allocate before the next sample: of all sizes, and of those that are wanted if not all
  // are. Otherwise 0, so that every block is looked at.
  std::uint64_t until_sample = 0;
  std::uint64_t until_wanted_sample = 0;
  std::uint64_t random = 0;
  std::uint32_t closings = 0;  // Modules::closings() when `memo` was made
  StackMemo memo;
};

}  // namespace reachscan::recorder
