// The threads that run, and the threads of the library that have ended, as far as their memory is
// still there: the library keeps stacks for the next thread, and a fork brings the stacks of all
// threads along, but only one thread.
#pragma once

#include "libc/thread_stack.hpp"
#include "memory/list.hpp"

namespace reachscan::libc {

using heaps::List;
using heaps::MapMemory;

constexpr std::size_t kMaxEndedThreads = 1 << 18;

struct EndedThread {
  Range stack;
  uint64_t descriptor;
};

struct Threads {
  const abi::Thread* running = nullptr;
  std::size_t running_count = 0;
  List<EndedThread> ended;
};

// The descriptors of running threads, to look them up.
class RunningThreads {
 public:
  RunningThreads(const Threads& threads, MapMemory map) : sorted_(map, threads.running_count) {
    for (std::size_t t = 0; t < threads.running_count; ++t)
      sorted_.push(threads.running[t].thread_pointer);
    sort(sorted_, [](uint64_t a, uint64_t b) { return a < b; });
  }

  bool has(uint64_t descriptor) const {
    std::size_t low = 0, high = sorted_.size();
    while (low < high) {
      std::size_t middle = (low + high) / 2;
      if (sorted_[middle] < descriptor) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low < sorted_.size() && sorted_[low] == descriptor;
  }

 private:
  List<uint64_t> sorted_;
};

// The thread, running or ended, whose stack ends at `end`.
inline EndedThread thread_below(const Space& space, const abi::Mapping& m, uint64_t end) {
  uint64_t lowest = end - m.start < kDescriptorReach ? m.start : end - kDescriptorReach;
  uint64_t at = lowest & ~(kDescriptorAlignment - 1);
  for (; at + kDescriptorBytes <= end; at += kDescriptorAlignment) {
    if (at < m.start || !is_descriptor(at)) continue;
    Range stack = stack_of(space, at);
    if (stack.end == end) return {stack, at};
  }
  at = musl::exited_below(space, m.start, end);
  if (at == 0) return {};
  return {musl::memory_of(space, at).stack, at};
}

// False if there are more than fit.
inline bool find_ended_threads(const Space& space, Threads& threads, MapMemory map) {
  RunningThreads running(threads, map);
  for (const abi::Mapping& m : space) {
    if (!Space::is_written_anonymous(m)) continue;
    // Such stacks lie side by side.
    for (uint64_t end = m.end; end > m.start;) {
      EndedThread thread = thread_below(space, m, end);
      if (thread.stack.end == 0) break;
      if (!running.has(thread.descriptor) && !threads.ended.push(thread)) return false;
      end = thread.stack.start;
    }
  }
  return true;
}

}  // namespace reachscan::libc
