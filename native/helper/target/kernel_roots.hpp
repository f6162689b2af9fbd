// Pointers that a program has passed to the kernel and may store nowhere else.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "helper/target/memory.hpp"
#include "helper/target/own_queues.hpp"
#include "helper/target/pipes.hpp"
#include "helper/target/rings.hpp"

namespace reachscan::helper {

struct KernelRoots {
  // Roots outside the memory: data of epoll registrations and values of eventfds
  // (/proc/PID/fdinfo), signal values of POSIX timers (/proc/PID/timers), io_uring completions that
  // wait for room, completions of io_submit() that wait to be fetched.
  std::vector<std::uint64_t> words;
  Rings rings;
  bool asynchronous = false;  // contexts of io_setup() exist
  OwnPipes pipes;
  OwnQueues queues;
  std::set<std::string> messages;  // clauses about data that waited in these
};

// Skips what may not be read or disappears meanwhile.
KernelRoots read_kernel_roots(pid_t pid, const Memory& memory);

// Returns clauses about what else the kernel may have held at some time between two observations.
std::vector<std::string> unread(const KernelRoots& before, const KernelRoots& after);

// Returns whether the program handles any signal: then its threads may have alternate signal
// stacks, which only the kernel knows.
bool handles_signals(pid_t pid);

// Adds the values of signals that are pending for a thread or its whole process (sigqueue(),
// timers). The threads must be stopped by us. Returns false if there were too many to read them
// all.
bool add_pending_signal_words(const std::vector<pid_t>& threads, std::vector<std::uint64_t>& words);

}  // namespace reachscan::helper
