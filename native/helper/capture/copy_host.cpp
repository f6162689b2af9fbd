// Forks that process, and hands it over stopped, with nothing in it that the kernel writes to.
#include "helper/capture/copy_host.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <string>

#include "arch/system_calls.hpp"
#include "helper/failure.hpp"
#include "helper/stop/wait.hpp"

namespace reachscan::helper {
namespace {

using wire::Step;

constexpr auto kBirthLimit = std::chrono::seconds(5);

// glibc 2.35 or later.
extern "C" __attribute__((weak)) const std::ptrdiff_t __rseq_offset;
extern "C" __attribute__((weak)) const unsigned int __rseq_size;

[[noreturn]] void fail(const std::string& what, int error, pid_t pid) {
  throw Failure(Step::kBuildCopy, Code::kInternal, what + ": " + std::strerror(error), error, pid);
}

// The C library has told the kernel of a word in its memory that is written at every switch to user
// mode (restartable sequences). That memory is about to go.
void forget_restartable_sequences() {
  if (&__rseq_size == nullptr || __rseq_size == 0) return;
  constexpr unsigned kUnregister = 1;
  char* area = static_cast<char*>(__builtin_thread_pointer()) + __rseq_offset;
  for (unsigned length : {32u, __rseq_size})
    if (syscall(SYS_rseq, area, length, kUnregister, arch::kRseqSignature) == 0) return;
}

}  // namespace

pid_t start_copy_host() {
  pid_t parent = getpid();
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) fail("cannot start a process for the copy", errno, 0);
  pid_t child = fork();
  if (child < 0) fail("cannot start a process for the copy", errno, 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    forget_restartable_sequences();
    close(ready[0]);
    close(ready[1]);
    for (;;) pause();
  }
  char byte;
  close(ready[1]);
  while (read(ready[0], &byte, 1) < 0 && errno == EINTR) {
  }
  close(ready[0]);
  if (ptrace(PTRACE_SEIZE, child, nullptr, PTRACE_O_EXITKILL) != 0 ||
      ptrace(PTRACE_INTERRUPT, child, nullptr, nullptr) != 0)
    fail("cannot take charge of the process for the copy", errno, child);
  if (!wait_for(child, Step::kBuildCopy, Clock::now() + kBirthLimit).stopped())
    fail("the process for the copy died", ECHILD, child);
  return child;
}

std::uint64_t copy_host_gadget() { return reinterpret_cast<std::uint64_t>(arch::reachscan_gadget); }

}  // namespace reachscan::helper
