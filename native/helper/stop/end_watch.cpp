// Waits on a pidfd in a thread of its own, and kills the victim when it becomes readable.
#include "helper/stop/end_watch.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <string>

#include "helper/failure.hpp"

namespace reachscan::helper {

EndWatch::EndWatch(pid_t process, pid_t victim)
    : process_(static_cast<int>(syscall(SYS_pidfd_open, process, 0))),
      done_(eventfd(0, EFD_CLOEXEC)),
      victim_(victim) {
  auto run = [](void* self) -> void* {
    static_cast<const EndWatch*>(self)->watch();
    return nullptr;
  };
  int error = process_ < 0 || done_ < 0 ? errno : pthread_create(&thread_, nullptr, run, this);
  if (error == 0) return;
  close(process_);
  close(done_);
  throw Failure(wire::Step::kPrepareClone, Code::kCloneRefused,
                std::string("the end of the target cannot be noticed: ") + std::strerror(error),
                error, process);
}

EndWatch::~EndWatch() {
  constexpr std::uint64_t kOne = 1;
  [[maybe_unused]] ssize_t written = write(done_, &kOne, sizeof kOne);
  pthread_join(thread_, nullptr);
  close(process_);
  close(done_);
}

void EndWatch::watch() const {
  pollfd events[] = {{process_, POLLIN, 0}, {done_, POLLIN, 0}};
  while (poll(events, 2, -1) < 0 && errno == EINTR) {
  }
  if (events[0].revents != 0) kill(victim_, SIGKILL);
}

}  // namespace reachscan::helper
