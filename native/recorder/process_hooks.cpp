// The functions that show when the process forks, closes a library or names a thread.
#include <linux/prctl.h>
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

}  // namespace

void look_up_process_functions() {
  next_fork.exists();
  next_raw_fork.exists();
  next_dlclose.exists();
  next_prctl.exists();
  next_set_name.exists();
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
  int result = next_prctl(what, first, second, third, fourth);
  if (what == PR_SET_NAME) recorder.thread_renamed();
  if (what == PR_SET_PTRACER && first == 0) permit_waiting_tracer();
  return result;
}

int pthread_setname_np(void* thread, const char* name) {
  CallingOut calling_out;
  int error = next_set_name(thread, name);
  recorder.thread_renamed();
  return error;
}

}  // extern "C"
#pragma GCC visibility pop
