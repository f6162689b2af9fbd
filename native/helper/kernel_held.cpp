#include "helper/kernel_held.hpp"

#include <dirent.h>
#include <sys/ptrace.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <csignal>
#include <sstream>
#include <string>
#include <string_view>

#include "helper/process.hpp"

namespace reachscan::helper {
namespace {

// Adds the hexadecimal number that follows `key` in each line that has it.
void add_values(pid_t pid, const std::string& name, std::string_view key,
                std::vector<std::uint64_t>& words) {
  std::istringstream text(try_read_proc_file(pid, name.c_str()));
  for (std::string line; std::getline(text, line);) {
    std::size_t at = line.find(key);
    if (at == std::string::npos) continue;
    at = line.find_first_not_of(' ', at + key.size());
    std::uint64_t value = 0;
    if (at != std::string::npos &&
        std::from_chars(line.data() + at, line.data() + line.size(), value, 16).ec == std::errc{})
      words.push_back(value);
  }
}

bool is_epoll(const std::string& link) {
  char target[64];
  ssize_t length = readlink(link.c_str(), target, sizeof target);
  return length > 0 &&
         std::string_view(target, static_cast<std::size_t>(length)) == "anon_inode:[eventpoll]";
}

// `flags`: 0 for the thread's own queue, PTRACE_PEEKSIGINFO_SHARED for that of the process.
void add_signal_values(pid_t tid, std::uint32_t flags, std::vector<std::uint64_t>& words) {
  std::array<siginfo_t, 32> pending;
  __ptrace_peeksiginfo_args request{0, flags, static_cast<std::int32_t>(pending.size())};
  for (;;) {
    long count = ptrace(PTRACE_PEEKSIGINFO, tid, &request, pending.data());
    for (long i = 0; i < count; ++i)
      words.push_back(reinterpret_cast<std::uint64_t>(pending[i].si_value.sival_ptr));
    if (count < static_cast<long>(pending.size())) return;
    request.off += static_cast<std::uint64_t>(count);
  }
}

}  // namespace

bool handles_signals(pid_t pid) {
  constexpr std::uint64_t kOfLibrary = 3ull << 31;  // 32 and 33: thread cancellation, setuid()
  std::string caught = status_field(pid, pid, "SigCgt");
  std::uint64_t signals = 0;
  std::from_chars(caught.data(), caught.data() + caught.size(), signals, 16);
  return (signals & ~kOfLibrary) != 0;
}

std::vector<std::uint64_t> pending_signal_words(const std::vector<pid_t>& threads) {
  std::vector<std::uint64_t> words;
  for (pid_t tid : threads) add_signal_values(tid, 0, words);
  if (!threads.empty()) add_signal_values(threads.front(), PTRACE_PEEKSIGINFO_SHARED, words);
  return words;
}

std::vector<std::uint64_t> kernel_held_words(pid_t pid) {
  std::vector<std::uint64_t> words;
  std::string process = "/proc/" + std::to_string(pid);
  // "tfd:        5 events:       19 data:     55d0c0ffee00  pos:0 ..."
  if (DIR* directory = opendir((process + "/fd").c_str())) {
    while (const dirent* entry = readdir(directory))
      if (is_epoll(process + "/fd/" + entry->d_name))
        add_values(pid, std::string("fdinfo/") + entry->d_name, "data:", words);
    closedir(directory);
  }
  // "signal: 34/000055d0c0ffee00"
  add_values(pid, "timers", "/", words);
  return words;
}

}  // namespace reachscan::helper
