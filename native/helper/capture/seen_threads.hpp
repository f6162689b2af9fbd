// What can be seen of threads that are not stopped.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "helper/capture/copy.hpp"

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

// From /proc/PID/task/TID/syscall. A thread that ends meanwhile is left out.
std::vector<SeenThread> see_threads(pid_t pid);

// The line of that file; what is not understood counts as running.
SeenThread parse_syscall_line(pid_t tid, const std::string& line);

// Where each thread's descriptor of the C library is, which is its thread pointer: in the copied
// memory of the process, by its shape. Threads without one are left out.
std::map<pid_t, std::uint64_t> find_descriptors(pid_t pid, const std::vector<SeenThread>& threads,
                                                const MemoryCopy& copy);

}  // namespace reachscan::helper
