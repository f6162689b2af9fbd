// Ways to call work that the sweeper may share among threads (heaps::OnThreads).
#pragma once

#include <cstdint>
#include <thread>
#include <vector>

namespace reachscan::tests {

inline void alone(std::uint64_t, void (*work)(void*), void* context) { work(context); }

// As the sweeper does it, but on threads of the test's own.
inline void on_three_threads(std::uint64_t, void (*work)(void*), void* context) {
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 3; ++i) threads.emplace_back(work, context);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace reachscan::tests
