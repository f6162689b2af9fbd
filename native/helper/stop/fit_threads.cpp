// Excludes threads whose system calls do not reach the kernel, or whose child would end a
// namespace.
#include "helper/stop/fit_threads.hpp"

#include <sys/ptrace.h>
#include <sys/stat.h>

#include <string>

#include "arch/system_calls.hpp"
#include "helper/target/process.hpp"

namespace reachscan::helper {
namespace {

// unshare(CLONE_NEWPID) sends a thread's next child, which would be the middleman, into a new
// namespace as its first process, and the end of that process ends the namespace. Kernels before
// 4.12 do not show this.
bool has_namespace_for_children(pid_t pid, pid_t tid) {
  std::string folder = "/proc/" + std::to_string(pid) + "/task/" + std::to_string(tid) + "/ns/";
  std::string next = folder + "pid_for_children";
  struct stat own {};
  struct stat of_children {};
  if (stat((folder + "pid").c_str(), &own) != 0) return false;
  // A namespace that has no process yet has a link that cannot be followed.
  if (stat(next.c_str(), &of_children) != 0) return lstat(next.c_str(), &of_children) == 0;
  return own.st_ino != of_children.st_ino;
}

// Returns whether a system call of the thread may raise SIGSYS instead of entering the kernel
// (PR_SET_SYSCALL_USER_DISPATCH, Linux 5.11). Kernels before 6.4 do not show this.
bool dispatches_system_calls(pid_t tid) {
  constexpr auto kGetConfiguration = static_cast<decltype(PTRACE_CONT)>(0x4211);
  struct {
    std::uint64_t mode, selector, offset, length;
  } configuration{};
  return ptrace(kGetConfiguration, tid, sizeof configuration, &configuration) == 0 &&
         configuration.mode != 0;
}

}  // namespace

const char* obstacle(pid_t pid, const StoppedThread& thread) {
  if (const char* why = arch::unfit_state(thread.registers)) return why;
  if (dispatches_system_calls(thread.tid))
    return "has its system calls dispatched to user space (PR_SET_SYSCALL_USER_DISPATCH)";
  if (has_namespace_for_children(pid, thread.tid))
    return "has unshared the PID namespace of its children";
  return nullptr;
}

}  // namespace reachscan::helper
