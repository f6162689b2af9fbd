// Whether data waits in sockets and message queues whose ends all belong to one process, such as
// those between its threads. The data may contain pointers. It is not read; only its presence is
// detected. A value that comes with a notification about a message queue cannot be read, either.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "helper/target/owned_descriptor.hpp"

namespace reachscan::helper {

class OwnQueues {
 public:
  OwnQueues() = default;

  // Finds the queues with both ends in the process: data from elsewhere does not point to its heap.
  // `descriptors`: the links in /proc/PID/fd and their names.
  OwnQueues(pid_t pid, const std::map<std::string, std::string>& descriptors);

  // Adds a clause for each kind of queue in which data is waiting. Takes some microseconds per
  // queue, and no more than querying all sockets.
  void look(std::set<std::string>& clauses) const;

 private:
  struct PosixQueue {
    std::string link;  // one of them, if there are several
    mode_t access;     // of all descriptors together
  };

  void find_sockets(const std::map<std::string, std::string>& descriptors);
  void find_posix_queues(const std::map<std::string, std::string>& descriptors);
  bool sockets_hold_data() const;
  bool posix_queues_hold_data() const;
  bool posix_queues_notify() const;
  bool system_v_queues_hold_data() const;

  pid_t pid_ = 0;
  OwnedDescriptor socket_facts_;     // netlink, in the network namespace of the process
  OwnedDescriptor system_v_queues_;  // /proc/sysvipc/msg, in its IPC namespace
  std::set<std::uint32_t> sockets_;
  bool unknown_sockets_ = false;  // it has some, but the kernel does not report them
  std::map<std::string, PosixQueue> posix_queues_;  // by name
};

}  // namespace reachscan::helper
