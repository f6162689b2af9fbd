// Reads the data that waits in pipes of which a process has both ends, such as those between its
// threads. The data may hold pointers.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace reachscan::helper {

// The pipes of which a process has both ends open: what comes from elsewhere does not point to its
// heap. By name ("pipe:[4711]"), with the link in /proc/PID/fd to the end that is read.
using OwnPipes = std::map<std::string, std::string>;

// From the links in /proc/PID/fd and their names.
OwnPipes find_own_pipes(const std::map<std::string, std::string>& descriptors);

// Copies what is in them, and takes nothing out.
class PipeReader {
 public:
  explicit PipeReader(const OwnPipes& pipes);
  ~PipeReader();
  PipeReader(const PipeReader&) = delete;
  PipeReader& operator=(const PipeReader&) = delete;

  // While the process is stopped by the calling thread: it keeps both ends itself then, and nobody
  // can tell that there is one more for a moment.
  void capture();

  // What may be addresses. Messages have any length, so that one may begin at each byte.
  std::vector<std::uint64_t> words() const;

  // Whether all was read that was in any of these.
  bool has_read_all(const OwnPipes& pipes) const;

 private:
  bool read(int pipe);

  const OwnPipes& pipes_;
  int scratch_[2] = {-1, -1};  // a pipe that takes the copies
  std::vector<char> bytes_;
  bool complete_ = true;
};

}  // namespace reachscan::helper
