// Notices that the reader has gone where no write would fail: behind a connection, or a compressor
// that keeps the last bytes to itself.
#pragma once

#include <pthread.h>

#include "helper/stream.hpp"

namespace reachscan::helper {

class Lifeline {
 public:
  // Starts a thread that waits until the other end of `fd` (a pipe or a socket; nothing is read
  // from it) is closed. The scan then ends in an orderly way with its next write, or with this
  // process if no write follows soon.
  Lifeline(int fd, Stream& stream);
  ~Lifeline();
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

 private:
  void watch() const;

  int fd_;
  int dismissed_;
  Stream& stream_;
  pthread_t thread_{};
};

}  // namespace reachscan::helper
