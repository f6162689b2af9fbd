// Pointers that a program has handed to the kernel and may keep nowhere else.
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
  // Roots beyond the memory: data of epoll registrations and values of eventfds (/proc/PID/fdinfo),
  // signal values of POSIX timers (/proc/PID/timers), answers of io_uring that wait for room.
  std::vector<std::uint64_t> words;
  Rings rings;
  bool asynchronous = false;  // there are contexts of io_setup()
  OwnPipes pipes;
  OwnQueues queues;
  std::set<std::string> messages;  // clauses about what waited in these
};

// What may not be read, or goes away meanwhile, is left out.
KernelRoots look_at_kernel_roots(pid_t pid, const Memory& memory);

// What the kernel may have held besides, some time between two looks: clauses about it.
std::vector<std::string> unread(const KernelRoots& before, const KernelRoots& after);

// Whether the program handles any signal: then its threads may have stacks for that, of which only
// the kernel knows.
bool handles_signals(pid_t pid);

// Adds the values that wait with signals for a thread, or for its whole process (sigqueue(),
// timers). The threads must be stopped by us. False if there were too many to read them all.
bool add_pending_signal_words(const std::vector<pid_t>& threads, std::vector<std::uint64_t>& words);

}  // namespace reachscan::helper
