// Examines all threads, and finds their thread pointers by the shape of glibc's descriptors.
#include "helper/capture/seen_threads.hpp"

#include <cstring>
#include <string>

#include "helper/target/process.hpp"
#include "libc/thread_descriptor.hpp"

namespace reachscan::helper {
namespace {

template <typename T>
T load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

std::vector<ObservedThread> observe_threads(pid_t pid) {
  std::vector<ObservedThread> threads;
  for (pid_t tid : list_threads(pid)) {
    if (is_kernel_worker(pid, tid)) continue;
    std::optional<ObservedThread> thread = observe_thread(pid, tid);
    if (!thread) continue;
    std::string turns = "task/" + std::to_string(tid) + "/schedstat";
    thread->turns = try_read_proc_file(pid, turns.c_str());
    threads.push_back(*thread);
  }
  return threads;
}

std::map<pid_t, std::uint64_t> find_descriptors(pid_t pid,
                                                const std::vector<ObservedThread>& threads,
                                                const MemoryCopy& copy) {
  std::map<pid_t, pid_t> by_inner_id;
  for (const ObservedThread& thread : threads) by_inner_id[inner_id(pid, thread.tid)] = thread.tid;
  std::map<pid_t, std::uint64_t> found;
  std::vector<std::uint64_t> nameless;
  if (!arch::kDescriptorKnowsItself) return found;
  copy.each_written([&](std::uint64_t start, const char* bytes, std::uint64_t length) {
    constexpr std::uint64_t kStep = libc::kDescriptorAlignment;
    std::uint64_t at = ((start + kStep - 1) & ~(kStep - 1)) - start;
    for (; at + libc::kThreadNumber + sizeof(pid_t) <= length; at += kStep) {
      std::uint64_t self = start + at;
      auto word = [&](std::uint64_t address) {
        return load<std::uint64_t>(bytes + (address - start));
      };
      if (!arch::is_descriptor(self, word)) continue;
      auto id = load<pid_t>(bytes + at + libc::kThreadNumber);
      auto thread = by_inner_id.find(id);
      if (thread != by_inner_id.end()) found[thread->second] = self;
      if (id == 0) nameless.push_back(self);
    }
  });
  // Before 2.34, the library stores the id only in programs that can have threads.
  if (found.empty() && threads.size() == 1 && nameless.size() == 1)
    found[threads[0].tid] = nameless[0];
  return found;
}

}  // namespace reachscan::helper
