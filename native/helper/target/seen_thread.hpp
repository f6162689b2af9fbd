// What /proc shows of a thread that may run.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace reachscan::helper {

struct SeenThread {
  pid_t tid;
  bool asleep;  // else it runs, and nothing of it can be seen
  bool in_call;
  std::uint64_t sp;
  std::uint64_t pc;
  std::array<std::uint64_t, 6> arguments;  // of the call
  std::string turns;  // how long and how often it has run; empty if the kernel does not tell
};

// From /proc/PID/task/TID/syscall; nothing if the thread has ended.
std::optional<SeenThread> see_thread(pid_t pid, pid_t tid);

// The line of that file; what is not understood counts as running.
SeenThread parse_syscall_line(pid_t tid, const std::string& line);

}  // namespace reachscan::helper
