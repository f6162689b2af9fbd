// Reads what /proc shows of running threads, and finds their thread pointers by the shape of
// glibc's descriptors.
#include "helper/capture/seen_threads.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

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

std::vector<std::uint64_t> hexadecimal_words(std::string_view text) {
  std::vector<std::uint64_t> words;
  for (std::size_t at = 0; (at = text.find("0x", at)) != std::string_view::npos;) {
    std::uint64_t value = 0;
    at += 2;
    std::from_chars(text.data() + at, text.data() + text.size(), value, 16);
    words.push_back(value);
  }
  return words;
}

}  // namespace

// "0 0x3 0x7ffd10 0x400 0x0 0x0 0x0 0x7ffce8 0x7f21ee", "-1 0x7ffce8 0x7f21ee" or "running"
SeenThread parse_syscall_line(pid_t tid, const std::string& line) {
  SeenThread thread{tid, false, false, 0, 0, {}, {}};
  std::vector<std::uint64_t> words = hexadecimal_words(line);
  thread.in_call = words.size() == 8;
  thread.asleep = thread.in_call || words.size() == 2;
  if (!thread.asleep) return thread;
  thread.sp = words[words.size() - 2];
  thread.pc = words[words.size() - 1];
  if (thread.in_call) std::copy_n(words.begin(), thread.arguments.size(), thread.arguments.begin());
  return thread;
}

std::vector<SeenThread> see_threads(pid_t pid) {
  std::vector<SeenThread> threads;
  for (pid_t tid : list_threads(pid)) {
    if (is_kernel_worker(pid, tid)) continue;
    std::string folder = "task/" + std::to_string(tid);
    std::string line = try_read_proc_file(pid, (folder + "/syscall").c_str());
    if (line.empty()) continue;
    threads.push_back(parse_syscall_line(tid, line));
    threads.back().turns = try_read_proc_file(pid, (folder + "/schedstat").c_str());
  }
  return threads;
}

std::map<pid_t, std::uint64_t> find_descriptors(pid_t pid, const std::vector<SeenThread>& threads,
                                                const MemoryCopy& copy) {
  std::map<pid_t, pid_t> by_inner_id;
  for (const SeenThread& thread : threads) by_inner_id[inner_id(pid, thread.tid)] = thread.tid;
  std::map<pid_t, std::uint64_t> found;
  std::vector<std::uint64_t> nameless;
  copy.each_written([&](std::uint64_t start, const char* bytes, std::uint64_t length) {
    constexpr std::uint64_t kStep = libc::kDescriptorAlignment;
    std::uint64_t at = ((start + kStep - 1) & ~(kStep - 1)) - start;
    for (; at + libc::kThreadNumber + sizeof(pid_t) <= length; at += kStep) {
      std::uint64_t self = start + at;
      if (load<std::uint64_t>(bytes + at + libc::kDescriptorAddress) != self ||
          load<std::uint64_t>(bytes + at + libc::kDescriptorAddressAgain) != self)
        continue;
      auto id = load<pid_t>(bytes + at + libc::kThreadNumber);
      auto thread = by_inner_id.find(id);
      if (thread != by_inner_id.end()) found[thread->second] = self;
      if (id == 0) nameless.push_back(self);
    }
  });
  // Before 2.34, the library fills the id in only where a program can have threads.
  if (found.empty() && threads.size() == 1 && nameless.size() == 1)
    found[threads[0].tid] = nameless[0];
  return found;
}

}  // namespace reachscan::helper
