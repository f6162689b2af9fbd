// Reads the data in pipes with both ends in one process, such as those between its threads. The
// data may contain pointers.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace reachscan::helper {

// Pipes with both ends open in the process: data from elsewhere does not point to its heap. By name
// ("pipe:[4711]"), with the link in /proc/PID/fd to the read end.
using OwnPipes = std::map<std::string, std::string>;

// Expects the links in /proc/PID/fd and their names.
OwnPipes find_own_pipes(const std::map<std::string, std::string>& descriptors);

// Copies what is in the pipes without consuming it.
class PipeReader {
 public:
  explicit PipeReader(const OwnPipes& pipes);
  ~PipeReader();
  PipeReader(const PipeReader&) = delete;
  PipeReader& operator=(const PipeReader&) = delete;

  // Called while the process is stopped by the calling thread: it keeps both ends open then, and
  // cannot notice an additional one for a moment.
  void capture();

  // Returns what may be addresses in a program with words of this size. Messages have any length,
  // so one may start at any byte.
  std::vector<std::uint64_t> words(std::size_t word_bytes) const;

  // Returns whether all data in these pipes was read.
  bool has_read_all(const OwnPipes& pipes) const;

 private:
  bool read(int pipe);

  const OwnPipes& pipes_;
  int scratch_[2] = {-1, -1};  // a pipe that receives the copies
  std::vector<char> bytes_;
  bool complete_ = true;
};

}  // namespace reachscan::helper
