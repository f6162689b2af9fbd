// The functions that tell when the process forks, ends, closes a library or names a thread.
#include <linux/prctl.h>
#include <sys/types.h>

#include "recorder/process.hpp"
#include "recorder/recorder.hpp"

namespace reachscan::recorder {

namespace {

using Main = int (*)(int, char**, char**);
using Handler = void (*)();

constinit Next<pid_t()> next_fork("fork");
constinit Next<pid_t()> next_raw_fork("_Fork");
constinit Next<void(int)> next_exit_now("_exit");
constinit Next<void(int)> next_exit_now_too("_Exit");
constinit Next<int(void*)> next_dlclose("dlclose");
constinit Next<int(int, long, long, long, long)> next_prctl("prctl");
constinit Next<int(void*, const char*)> next_set_name("pthread_setname_np");
constinit Next<int(Main, int, char**, Handler, Handler, Handler, void*)> next_start_main(
    "__libc_start_main");

constinit Handler loader_end = nullptr;

// Runs behind all handlers of atexit and the destructors of all libraries.
void end_behind_loader() {
  if (loader_end != nullptr) loader_end();
  announce_end();
}

// The first allocation has done this before, if there was one.
__attribute__((constructor)) void prepare_at_start(int, char**, char** environment) {
  prepare_process(environment);
}

// For C libraries that have no such handler of the loader: as late as destructors are called.
__attribute__((destructor)) void end_as_library() {
  if (loader_end == nullptr) announce_end();
}

}  // namespace

}  // namespace reachscan::recorder

using namespace reachscan::recorder;

#pragma GCC visibility push(default)
extern "C" {

int __libc_start_main(Main main, int count, char** arguments, Handler begin, Handler end,
                      Handler loader, void* stack) {
  loader_end = loader;
  return next_start_main(main, count, arguments, begin, end,
                         loader == nullptr ? nullptr : end_behind_loader, stack);
}

pid_t fork() {
  pid_t child = next_fork();
  if (child == 0) recorder.forked();
  return child;
}

pid_t _Fork() {
  pid_t child = next_raw_fork();
  if (child == 0) recorder.forked();
  return child;
}

[[noreturn]] void _exit(int status) {
  announce_end();
  next_exit_now(status);
  __builtin_trap();
}

[[noreturn]] void _Exit(int status) {
  announce_end();
  next_exit_now_too(status);
  __builtin_trap();
}

int dlclose(void* library) {
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
  int result = next_prctl(what, first, second, third, fourth);
  if (what == PR_SET_NAME) recorder.thread_renamed();
  if (what == PR_SET_PTRACER && first == 0) permit_waiting_tracer();
  return result;
}

int pthread_setname_np(void* thread, const char* name) {
  int error = next_set_name(thread, name);
  recorder.thread_renamed();
  return error;
}

}  // extern "C"
#pragma GCC visibility pop
