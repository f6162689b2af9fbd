// What /proc shows about a thread that may be running.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace reachscan::helper {

struct ObservedThread {
  pid_t tid;
  bool asleep;  // otherwise it is running and shows nothing
  bool in_call;
  std::uint64_t sp;
  std::uint64_t pc;
  std::array<std::uint64_t, 6> arguments;  // of the call
  std::int64_t number;                     // of the call
  std::string turns;  // how long and how often it has run; empty if the kernel does not report it
};

// Reads /proc/PID/task/TID/syscall; returns nothing if the thread has exited.
std::optional<ObservedThread> observe_thread(pid_t pid, pid_t tid);

// Parses the line of that file; an unknown format counts as running.
ObservedThread parse_syscall_line(pid_t tid, const std::string& line);

}  // namespace reachscan::helper
