// Open files of a process that would make cloning it noticeable.
#pragma once

#include <sys/types.h>

namespace reachscan::helper {

struct OpenFiles {
  // Some are on a file system served by a process or another machine, which is notified of each
  // close of a descriptor, even of a copied one.
  bool served = false;
  // Some are locked with fcntl(). The owner of such a lock is the descriptor table: a program that
  // calls exec() while another process shares the table loses its locks.
  bool locked = false;
  // A userfaultfd reports forks: the kernel blocks fork() until the descriptor is read, and hands
  // out another one.
  bool gets_fork_events = false;
  // A performance counter, which a clone would share: it counts, and signals, what the clone does.
  bool counts_events = false;
};

// Examines /proc without contacting any server. What may not be read counts as absent.
OpenFiles read_open_files(pid_t pid);

}  // namespace reachscan::helper
