// Kills one process as soon as another one has ended.
#pragma once

#include <pthread.h>
#include <sys/types.h>

namespace reachscan::helper {

// Active while it exists. `victim` must be a child or tracee that nothing reaps meanwhile.
class EndWatch {
 public:
  // Throws Failure(kPrepareClone, kCloneRefused) if the kernel cannot report the end.
  EndWatch(pid_t process, pid_t victim);
  ~EndWatch();
  EndWatch(const EndWatch&) = delete;
  EndWatch& operator=(const EndWatch&) = delete;

 private:
  void watch() const;

  int process_;  // becomes readable when the process ends
  int done_;     // becomes readable when the watch is over
  pid_t victim_;
  pthread_t thread_{};
};

}  // namespace reachscan::helper
