// Runs one piece of work on several threads of the clone.
#pragma once

#include "sweeper/blob/host.hpp"

namespace reachscan::sweeper {

// Returns how many threads are allowed and worthwhile for this many bytes.
inline uint64_t threads_for(uint64_t bytes) {
  constexpr uint64_t kBytesPerThread = 8 << 20;  // for less, starting a thread takes longer
  uint64_t threads = bytes / kBytesPerThread;
  if (threads > control()->marking_threads) threads = control()->marking_threads;
  return threads > 0 ? threads : 1;
}

// Calls work(index) on each thread. The calling thread has index 0 and is the only one that may
// make requests; the breakpoints of the others are naps.
template <typename Work>
class ParallelRun {
 public:
  ParallelRun(uint64_t threads, Work work) : work_(work), threads_(threads) {}
  ParallelRun(const ParallelRun&) = delete;
  ParallelRun& operator=(const ParallelRun&) = delete;

  // Returns when all threads are done.
  void run() {
    for (uint64_t n = 1; n < threads_ && start(); ++n) continue;
    work_(0u);
    if (threads_ == 1) return;
    for (unsigned looks = 1; __atomic_load_n(&busy_, __ATOMIC_ACQUIRE) != 0; ++looks) {
      relax();
      if (looks % kSpinsBeforeNap == 0) request(abi::Request::kNap);
    }
    request(abi::Request::kEndThreads);
  }

 private:
  static constexpr unsigned kSpinsBeforeNap = 1000;  // some 20 us

  bool start() {
    __atomic_add_fetch(&busy_, 1, __ATOMIC_RELAXED);
    if (request(abi::Request::kStartThread, reinterpret_cast<std::uintptr_t>(&begin),
                reinterpret_cast<std::uintptr_t>(this)) != 0)
      return true;
    __atomic_sub_fetch(&busy_, 1, __ATOMIC_RELAXED);
    return false;
  }

  static void begin(ParallelRun* parallel) {
    open_protection_keys();
    parallel->work_(__atomic_add_fetch(&parallel->last_index_, 1, __ATOMIC_RELAXED));
    __atomic_sub_fetch(&parallel->busy_, 1, __ATOMIC_RELEASE);
    for (;;) trap();  // there is nothing to return to
  }

  Work work_;
  uint64_t threads_;
  uint32_t busy_ = 0;  // of the others
  uint32_t last_index_ = 0;
};

// Implements heaps::OnThreads::run.
inline void on_threads(uint64_t bytes, void (*work)(void* context), void* context) {
  ParallelRun(threads_for(bytes), [=](unsigned) { work(context); }).run();
}

}  // namespace reachscan::sweeper
