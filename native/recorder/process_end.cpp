// The functions that show when the process starts and ends.
#include "recorder/process.hpp"
#include "recorder/recorder.hpp"

namespace reachscan::recorder {

constinit thread_local ThreadState thread_state;

namespace {

using Main = int (*)(int, char**, char**);
using Handler = void (*)();

constinit Next<void(int)> next_exit_now("_exit");
constinit Next<void(int)> next_exit_now_c99("_Exit");
constinit Next<int(Main, int, char**, Handler, Handler, Handler, void*)> next_start_main(
    "__libc_start_main");

constinit Handler loader_end = nullptr;

// Runs after all atexit handlers and the destructors of all libraries.
void end_after_loader() {
  if (loader_end != nullptr) loader_end();
  announce_end();
}

// The first allocation, if any, has done this already.
__attribute__((constructor)) void prepare_at_start(int, char**, char** environment) {
  prepare_process(environment);
}

// For C libraries without such a handler of the loader: runs as late as destructors are called.
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
                         loader == nullptr ? nullptr : end_after_loader, stack);
}

[[noreturn]] void _exit(int status) {
  announce_end();
  next_exit_now(status);
  __builtin_trap();
}

[[noreturn]] void _Exit(int status) {
  announce_end();
  next_exit_now_c99(status);
  __builtin_trap();
}

}  // extern "C"
#pragma GCC visibility pop
