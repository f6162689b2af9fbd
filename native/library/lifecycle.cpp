// What the library does on its own: scans when the process exits, and when a signal arrives; also
// LeakSanitizer's calls, which may come earlier.
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "library/entry.hpp"
#include "library/settings.hpp"

#pragma weak pthread_create
#pragma weak pthread_detach

extern "C" {
// The program may define these.
[[gnu::weak]] int __lsan_is_turned_off();
[[gnu::weak]] const char* __lsan_default_options();
[[gnu::weak]] const char* __lsan_default_suppressions();
// What pthread_atfork() calls in glibc and other C libraries.
[[gnu::weak]] int __register_atfork(void (*)(), void (*)(), void (*)(), void*);
}

namespace reachscan::library {
namespace {

std::atomic<bool> exit_check_done{false};

bool is_turned_off() { return __lsan_is_turned_off != nullptr && __lsan_is_turned_off() != 0; }

// The status that the program has chosen for LeakSanitizer, unless the environment overrides it.
int exit_code() {
  const char* options = __lsan_default_options != nullptr ? __lsan_default_options() : nullptr;
  const char* chosen = options != nullptr ? std::strstr(options, "exitcode=") : nullptr;
  if (chosen == nullptr || getenv("REACHSCAN_EXITCODE") != nullptr) return settings().exit_code;
  return std::atoi(chosen + std::strlen("exitcode="));
}

void say(const char* sentence) {
  if (write(STDERR_FILENO, sentence, std::strlen(sentence)) < 0) return;  // stderr is closed
}

int check() {
  if (__lsan_default_suppressions != nullptr && *__lsan_default_suppressions() != 0)
    say("reachscan: suppressions by function name need stacks and are not applied; scan from "
        "outside with --suppressions\n");
  return check_by_settings(Told::kIfLeaks);
}

int check_and_exit(const void*, void*) {
  if (exit_check_done.exchange(true) || is_turned_off()) return 0;
  if (check() != REACHSCAN_LEAKS) return 0;
  int status = exit_code();
  if (status == 0) return 0;
  fflush(nullptr);
  _exit(status);
}

int check_and_return(const void*, void*) {
  return !is_turned_off() && check() == REACHSCAN_LEAKS ? 1 : 0;
}

// A handler must not scan: the thread may be inside malloc. It wakes another thread instead.
std::atomic<int> asked{0};
std::atomic<int> served{0};  // a thread that starts later serves earlier requests

void ask(int) {
  int before = errno;
  asked.fetch_add(1);
  syscall(SYS_futex, &asked, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  errno = before;
}

void* serve(void*) {
  for (;;) {
    while (asked.load() == served.load())
      syscall(SYS_futex, &asked, FUTEX_WAIT, served.load(), nullptr, nullptr, 0);
    served = asked.load();
    check_by_settings(Told::kAlways);
  }
  return nullptr;
}

void start_server() {
  if (pthread_create == nullptr) return say("reachscan: REACHSCAN_SIGNAL needs threads\n");
  // The thread must not handle the program's signals.
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  if (pthread_create(&thread, nullptr, serve, nullptr) == 0) {
    pthread_detach(thread);
  } else {
    say("reachscan: there is no thread for REACHSCAN_SIGNAL\n");
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

[[gnu::constructor]] void begin() {
  if (settings().signal == 0) return;
  struct sigaction action {};
  action.sa_handler = ask;
  action.sa_flags = SA_RESTART;
  if (sigaction(settings().signal, &action, nullptr) != 0)
    return say("reachscan: REACHSCAN_SIGNAL names a signal that cannot be handled\n");
  start_server();
  // The thread does not exist in a forked child.
  if (__register_atfork != nullptr) __register_atfork(nullptr, nullptr, start_server, nullptr);
}

// Runs after the handlers of the program, and after its own destructors.
[[gnu::destructor(101)]] void end() {
  if (settings().at_exit) enter_at_exit(check_and_exit);
}

}  // namespace
}  // namespace reachscan::library

using namespace reachscan::library;

void __lsan_do_leak_check() { enter(check_and_exit, nullptr, nullptr); }

int __lsan_do_recoverable_leak_check() { return enter(check_and_return, nullptr, nullptr); }

void __lsan_disable() { reachscan_disable(); }
void __lsan_enable() { reachscan_enable(); }
void __lsan_ignore_object(const void* block) { reachscan_ignore_object(block); }
void __lsan_register_root_region(const void* start, size_t size) {
  reachscan_register_root_region(start, size);
}
void __lsan_unregister_root_region(const void* start, size_t size) {
  reachscan_unregister_root_region(start, size);
}
