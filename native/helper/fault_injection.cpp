// Counts the wrapped calls, and dies or hangs before the chosen one.
#include "helper/fault_injection.hpp"

#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>

namespace reachscan::helper {
namespace {

std::uint64_t fatal_call = 0;
std::uint64_t endless_call = 0;
std::uint64_t calls = 0;

void count_call() {
  if (++calls == fatal_call) kill(getpid(), SIGKILL);
  while (calls == endless_call) pause();
}

}  // namespace

void die_before_call(std::uint64_t number) { fatal_call = number; }

void stall_before_call(std::uint64_t number) { endless_call = number; }

std::uint64_t calls_made() { return calls; }

}  // namespace reachscan::helper

extern "C" {

long __real_ptrace(int request, pid_t pid, void* address, void* data);
pid_t __real_waitpid(pid_t pid, int* status, int options);
int __real_waitid(idtype_t type, id_t id, siginfo_t* info, int options);
ssize_t __real_pwrite(int fd, const void* buffer, std::size_t length, off_t offset);
ssize_t __real_write(int fd, const void* buffer, std::size_t length);
ssize_t __real_tee(int from, int to, std::size_t length, unsigned flags);

long __wrap_ptrace(int request, pid_t pid, void* address, void* data) {
  reachscan::helper::count_call();
  return __real_ptrace(request, pid, address, data);
}

pid_t __wrap_waitpid(pid_t pid, int* status, int options) {
  reachscan::helper::count_call();
  return __real_waitpid(pid, status, options);
}

int __wrap_waitid(idtype_t type, id_t id, siginfo_t* info, int options) {
  reachscan::helper::count_call();
  return __real_waitid(type, id, info, options);
}

ssize_t __wrap_pwrite(int fd, const void* buffer, std::size_t length, off_t offset) {
  reachscan::helper::count_call();
  return __real_pwrite(fd, buffer, length, offset);
}

ssize_t __wrap_write(int fd, const void* buffer, std::size_t length) {
  reachscan::helper::count_call();
  return __real_write(fd, buffer, length);
}

ssize_t __wrap_tee(int from, int to, std::size_t length, unsigned flags) {
  reachscan::helper::count_call();
  return __real_tee(from, to, length, flags);
}

}  // extern "C"
