// Ways to call work that the sweeper may share among threads.
#pragma once

#include <thread>
#include <vector>

#include "heaps/heap.hpp"

namespace reachscan::tests {

inline constexpr heaps::OnThreads alone{
    [](heaps::uint64_t) -> heaps::uint64_t { return 1; },
    [](heaps::uint64_t, heaps::OnThreads::Work work, void* context) { work(context); }};

// As the sweeper does it, but on threads of the test's own.
inline constexpr heaps::OnThreads on_three_threads{
    [](heaps::uint64_t) -> heaps::uint64_t { return 3; },
    [](heaps::uint64_t bytes, heaps::OnThreads::Work work, void* context) {
      std::vector<std::thread> threads;
      while (threads.size() < on_three_threads.count(bytes)) threads.emplace_back(work, context);
      for (std::thread& thread : threads) thread.join();
    }};

}  // namespace reachscan::tests
