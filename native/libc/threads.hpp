// The running threads, and the library's exited threads whose memory still exists: the library
// keeps stacks for the next thread, and fork() copies the stacks of all threads but only one
// thread.
#pragma once

#include "libc/thread_stack.hpp"
#include "memory/list.hpp"

namespace reachscan::libc {

using heaps::List;
using heaps::MapMemory;

constexpr std::size_t kMaxExitedThreads = 1 << 18;

struct ExitedThread {
  Range stack;
  uint64_t descriptor;
  uint64_t thread_pointer;
};

struct Threads {
  const abi::Thread* running = nullptr;
  std::size_t running_count = 0;
  List<ExitedThread> ended;
  arch::DescriptorShape descriptors{};
};

// A searchable set of the thread pointers of running threads.
class RunningThreads {
 public:
  RunningThreads(const Threads& threads, MapMemory map) : sorted_(map, threads.running_count) {
    for (std::size_t t = 0; t < threads.running_count; ++t)
      sorted_.push(threads.running[t].thread_pointer);
    heaps::sort(sorted_);
  }

  bool has(uint64_t thread_pointer) const {
    std::size_t at = heaps::lower_bound(sorted_, thread_pointer);
    return at < sorted_.size() && sorted_[at] == thread_pointer;
  }

 private:
  List<uint64_t> sorted_;
};

// Reads the words that identify a descriptor. Its own are known to be readable; others are 0 if
// they are not.
struct DescriptorWords {
  const Space& space;
  uint64_t operator()(uint64_t address) const {
    return arch::kDescriptorKnowsItself || space.readable(address, heaps::kWord) ? word(address)
                                                                                 : 0;
  }
};

// Found through the first thread that shows it. On some processors it is fixed.
inline arch::DescriptorShape shape_of_descriptors(const Space& space, const Threads& threads) {
  for (std::size_t t = 0; t < threads.running_count; ++t) {
    auto shape = arch::descriptor_shape(threads.running[t].thread_pointer, DescriptorWords{space});
    if (shape.bytes != 0) return shape;
  }
  return arch::descriptor_shape(0, DescriptorWords{space});
}

// Returns the thread, running or exited, whose stack ends at `end`.
inline ExitedThread thread_below(const Space& space, arch::DescriptorShape shape,
                                 const abi::Mapping& m, uint64_t end) {
  uint64_t lowest = end - m.start < kDescriptorReach ? m.start : end - kDescriptorReach;
  uint64_t at = lowest & ~(kDescriptorAlignment - 1);
  for (; shape.bytes != 0 && at + shape.bytes <= end; at += kDescriptorAlignment) {
    if (at < m.start || !arch::is_descriptor(at, DescriptorWords{space})) continue;
    Range stack = stack_of(space, at + shape.thread_pointer);
    if (stack.end == end) return {stack, at, at + shape.thread_pointer};
  }
  at = musl::exited_below(space, m.start, end);
  if (at == 0) return {};
  return {musl::memory_of(space, at).stack, at, at};
}

// Returns false if there are too many.
inline bool find_exited_threads(const Space& space, Threads& threads, MapMemory map) {
  RunningThreads running(threads, map);
  threads.descriptors = shape_of_descriptors(space, threads);
  for (const abi::Mapping& m : space) {
    if (!Space::is_written_anonymous(m)) continue;
    // Such stacks are adjacent.
    for (uint64_t end = m.end; end > m.start;) {
      ExitedThread thread = thread_below(space, threads.descriptors, m, end);
      if (thread.stack.end == 0) break;
      if (!running.has(thread.thread_pointer) && !threads.ended.push(thread)) return false;
      end = thread.stack.start;
    }
  }
  return true;
}

}  // namespace reachscan::libc
