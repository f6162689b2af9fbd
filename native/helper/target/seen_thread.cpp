// Reads the kernel's line about a thread's system call.
#include "helper/target/seen_thread.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include "helper/target/process.hpp"

namespace reachscan::helper {
namespace {

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
ObservedThread parse_syscall_line(pid_t tid, const std::string& line) {
  ObservedThread thread{tid, false, false, 0, 0, {}, 0, {}};
  std::vector<std::uint64_t> words = hexadecimal_words(line);
  thread.in_call = words.size() == 8;
  thread.asleep = thread.in_call || words.size() == 2;
  if (!thread.asleep) return thread;
  thread.sp = words[words.size() - 2];
  thread.pc = words[words.size() - 1];
  if (!thread.in_call) return thread;
  std::copy_n(words.begin(), thread.arguments.size(), thread.arguments.begin());
  std::from_chars(line.data(), line.data() + line.size(), thread.number);
  return thread;
}

std::optional<ObservedThread> observe_thread(pid_t pid, pid_t tid) {
  std::string path = "task/" + std::to_string(tid) + "/syscall";
  std::string line = try_read_proc_file(pid, path.c_str());
  if (line.empty()) return std::nullopt;
  return parse_syscall_line(tid, line);
}

}  // namespace reachscan::helper
