// What a process has open that somebody would notice if the process were cloned.
#pragma once

#include <sys/types.h>

namespace reachscan::helper {

struct OpenFiles {
  // Some lie on a file system that a process or another machine serves, and that is told of each
  // close of a descriptor, also of a copied one.
  bool served = false;
  // Some are locked by fcntl(). The owner of such a lock is the descriptor table: a program that is
  // executed while another process shares the table loses them.
  bool locked = false;
  // A userfaultfd is told of forks: the kernel holds fork() back until the descriptor is read, and
  // hands out another one.
  bool told_of_forks = false;
};

// Looks through /proc; no server is asked. What may not be read counts as not there.
OpenFiles look_at_open_files(pid_t pid);

}  // namespace reachscan::helper
