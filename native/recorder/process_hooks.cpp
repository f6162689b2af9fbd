// The functions that show when the process forks, closes a library, names a thread or confines
// itself.
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <sys/types.h>

#include "recorder/process.hpp"
#include "recorder/recorder.hpp"

namespace reachscan::recorder {

namespace {

constinit Next<pid_t()> next_fork("fork");
constinit Next<pid_t()> next_raw_fork("_Fork");
constinit Next<int(void*)> next_dlclose("dlclose");
constinit Next<int(int, long, long, long, long)> next_prctl("prctl");
constinit Next<int(void*, const char*)> next_set_name("pthread_setname_np");
constinit Next<long(long, long, long, long, long, long, arch::SixthArgument)> next_syscall(
    "syscall");

// Called before the filter is installed, which may forbid all that could be done afterwards. Who
// only asks whether there are filters passes none.
void confine_recorder(bool needs_filter, long filter) {
  if (needs_filter && filter == 0) return;
  confine(true);
  recorder.confined();
}

}  // namespace

void look_up_process_functions() {
  next_fork.exists();
  next_raw_fork.exists();
  next_dlclose.exists();
  next_prctl.exists();
  next_set_name.exists();
  next_syscall.exists();
}

}  // namespace reachscan::recorder

using namespace reachscan::recorder;

#pragma GCC visibility push(default)
extern "C" {

pid_t fork() {
  CallingOut calling_out;
  pid_t child = next_fork();
  if (child == 0) recorder.forked();
  return child;
}

pid_t _Fork() {
  CallingOut calling_out;
  pid_t child = next_raw_fork();
  if (child == 0) recorder.forked();
  return child;
}

int dlclose(void* library) {
  CallingOut calling_out;
  int error = next_dlclose(library);
  recorder.library_closed();
  return error;
}

int prctl(int what, ...) {
  __builtin_va_list rest;
  __builtin_va_start(rest, what);
  long first = __builtin_va_arg(rest, long), second = __builtin_va_arg(rest, long);
  long third = __builtin_va_arg(rest, long), fourth = __builtin_va_arg(rest, long);
  __builtin_va_end(rest);
  CallingOut calling_out;
  if (what == PR_SET_SECCOMP) confine_recorder(first == SECCOMP_MODE_FILTER, second);
  int result = next_prctl(what, first, second, third, fourth);
  if (what == PR_SET_NAME) recorder.thread_renamed();
  if (what == PR_SET_PTRACER && first == 0) permit_waiting_tracer();
  return result;
}

// A call may return twice, or in a thread of its own: nothing may be done after it.
PASSES_ON long syscall(long number, long first, long second, long third, long fourth, long fifth,
                       reachscan::arch::SixthArgument sixth) {
  if (number == __NR_seccomp && first <= SECCOMP_SET_MODE_FILTER)
    confine_recorder(first == SECCOMP_SET_MODE_FILTER, third);
  return next_syscall(number, first, second, third, fourth, fifth, sixth);
}

int pthread_setname_np(void* thread, const char* name) {
  CallingOut calling_out;
  int error = next_set_name(thread, name);
  recorder.thread_renamed();
  return error;
}

}  // extern "C"
#pragma GCC visibility pop
