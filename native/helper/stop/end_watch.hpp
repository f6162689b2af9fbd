// Kills one process as soon as another one has ended.
#pragma once

#include <pthread.h>
#include <sys/types.h>

namespace reachscan::helper {

// For its lifetime. `victim` must be a child or tracee that nobody reaps meanwhile.
class EndWatch {
 public:
  // Throws Failure(kPrepareClone, kCloneRefused) if the kernel cannot tell of the end.
  EndWatch(pid_t process, pid_t victim);
  ~EndWatch();
  EndWatch(const EndWatch&) = delete;
  EndWatch& operator=(const EndWatch&) = delete;

 private:
  void watch() const;

  int process_;  // a descriptor that becomes readable at its end
  int done_;     // and one that does when nobody waits for that any more
  pid_t victim_;
  pthread_t thread_{};
};

}  // namespace reachscan::helper
