// The threads of the library that have ended, as far as their memory is still there: the library
// keeps stacks for the next thread, and a fork brings the stacks of all threads along, but only one
// thread.
#pragma once

#include "heaps/glibc/thread_stack.hpp"
#include "heaps/list.hpp"

namespace reachscan::heaps::glibc {

struct EndedThread {
  Range stack;
  uint64_t descriptor;
};

class EndedThreads {
 public:
  EndedThreads(const Space& space, const abi::Thread* threads, std::size_t thread_count)
      : space_(space), threads_(threads), thread_count_(thread_count) {}

  template <typename Visit>
  void each(Visit visit) const {
    for (const abi::Mapping& m : space_) {
      if (!Space::is_written_anonymous(m)) continue;
      // Such stacks lie side by side.
      for (uint64_t end = m.end; end > m.start;) {
        EndedThread thread = thread_below(m, end);
        if (thread.stack.end == 0) break;
        if (!is_running(thread.descriptor)) visit(thread);
        end = thread.stack.start;
      }
    }
  }

 private:
  // The thread, running or ended, whose stack ends at `end`.
  EndedThread thread_below(const abi::Mapping& m, uint64_t end) const {
    uint64_t lowest = end - m.start < kDescriptorReach ? m.start : end - kDescriptorReach;
    for (uint64_t at = lowest & ~63ull; at + kDescriptorBytes <= end; at += 64) {
      if (at < m.start || word(at) != at || word(at + 16) != at) continue;
      Range stack = stack_of(space_, at);
      if (stack.end == end) return {stack, at};
    }
    return {};
  }

  bool is_running(uint64_t descriptor) const {
    for (std::size_t t = 0; t < thread_count_; ++t)
      if (threads_[t].thread_pointer == descriptor) return true;
    return false;
  }

  const Space& space_;
  const abi::Thread* threads_;
  std::size_t thread_count_;
};

}  // namespace reachscan::heaps::glibc
