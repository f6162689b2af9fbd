// Waits for the end of the connection, or for its own dismissal.
#include "helper/lifeline.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

namespace reachscan::helper {
namespace {

constexpr int kReleaseMilliseconds = 5000;
constexpr int kForEver = -1;

[[noreturn]] void fail_to_start(int error) {
  throw Failure(wire::Step::kOpenTarget, Code::kInternal,
                std::string("cannot watch over the connection: ") + std::strerror(error), error);
}

bool dismissed_within(int milliseconds, pollfd (&ends)[2]) {
  while (poll(ends, 2, milliseconds) < 0 && errno == EINTR) {
  }
  return ends[0].revents != 0;
}

}  // namespace

Lifeline::Lifeline(int fd, Stream& stream)
    : fd_(fd), dismissed_(eventfd(0, EFD_CLOEXEC)), stream_(stream) {
  if (dismissed_ < 0) fail_to_start(errno);
  auto run = [](void* self) -> void* {
    static_cast<Lifeline*>(self)->watch();
    return nullptr;
  };
  int error = pthread_create(&thread_, nullptr, run, this);
  if (error == 0) return;
  close(dismissed_);
  fail_to_start(error);
}

Lifeline::~Lifeline() {
  eventfd_write(dismissed_, 1);
  pthread_join(thread_, nullptr);
  close(dismissed_);
}

void Lifeline::watch() const {
  pollfd ends[2] = {{dismissed_, POLLIN, 0}, {fd_, POLLRDHUP, 0}};
  if (dismissed_within(kForEver, ends)) return;
  stream_.give_up();
  ends[1].fd = -1;  // one notification is enough
  if (!dismissed_within(kReleaseMilliseconds, ends)) _exit(1);
}

}  // namespace reachscan::helper
