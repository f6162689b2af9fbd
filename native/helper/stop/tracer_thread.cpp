// Starts the tracer's thread with a descriptor table of its own, and passes its failure to the
// caller.
#include "helper/stop/tracer_thread.hpp"

#include <pthread.h>
#include <unistd.h>

#include <cstring>
#include <exception>
#include <string>

#include "helper/failure.hpp"

namespace reachscan::helper {
namespace {

// SYS_close_range, and CLOSE_RANGE_UNSHARE of linux/close_range.h.
constexpr long kCloseRange = 436;
constexpr unsigned kUnshare = 2;

struct Job {
  const std::function<void()>& work;
  std::exception_ptr failure;
};

void* run(void* argument) {
  Job& job = *static_cast<Job*>(argument);
  // A separate descriptor table: when this thread is killed, the kernel closes what it has opened
  // before it detaches from the target. Kernels before 5.9 do not.
  syscall(kCloseRange, ~0u, ~0u, kUnshare);
  try {
    job.work();
  } catch (...) {
    job.failure = std::current_exception();
  }
  return nullptr;
}

}  // namespace

void run_as_tracer(const std::function<void()>& work) {
  Job job{work, nullptr};
  pthread_t thread;
  int error = pthread_create(&thread, nullptr, run, &job);
  if (error != 0)
    throw Failure(wire::Step::kOpenTarget, Code::kInternal,
                  std::string("cannot start a thread: ") + std::strerror(error), error);
  pthread_join(thread, nullptr);
  if (job.failure) std::rethrow_exception(job.failure);
}

}  // namespace reachscan::helper
