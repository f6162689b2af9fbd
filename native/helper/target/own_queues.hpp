// Whether data waits in sockets and message queues whose ends all belong to one process, such as
// those between its threads. The data may hold pointers. It is not read; we only find out whether
// there is any.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace reachscan::helper {

// A descriptor of ours that is closed with its owner; -1 if there is none.
class OwnedDescriptor {
 public:
  explicit OwnedDescriptor(int fd = -1) : fd_(fd) {}
  OwnedDescriptor(OwnedDescriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  OwnedDescriptor& operator=(OwnedDescriptor&& other) noexcept;
  ~OwnedDescriptor();
  int get() const { return fd_; }

 private:
  int fd_;
};

class OwnQueues {
 public:
  OwnQueues() = default;

  // Finds the queues of which the process has both ends: what comes from elsewhere does not point
  // to its heap. `descriptors`: the links in /proc/PID/fd and their names.
  OwnQueues(pid_t pid, const std::map<std::string, std::string>& descriptors);

  // Adds a clause for each kind of queue in which something waits now. It takes some microseconds
  // for each queue, and no more than a look at all sockets.
  void look(std::set<std::string>& clauses) const;

 private:
  void find_sockets(const std::map<std::string, std::string>& descriptors);
  void find_posix_queues(const std::map<std::string, std::string>& descriptors);
  bool sockets_hold_data() const;
  bool posix_queues_hold_data() const;
  bool system_v_queues_hold_data() const;

  pid_t pid_ = 0;
  OwnedDescriptor socket_facts_;     // netlink, in the network namespace of the process
  OwnedDescriptor system_v_queues_;  // /proc/sysvipc/msg, of its IPC namespace
  std::set<std::uint32_t> sockets_;
  bool unknown_sockets_ = false;                     // it has some, and the kernel does not tell
  std::map<std::string, std::string> posix_queues_;  // by name: a link to one
};

}  // namespace reachscan::helper
