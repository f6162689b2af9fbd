// The signal that requests a report belongs to the recorder: the action that the program sets for
// it is only stored, and returned to the program when it asks.
#include <signal.h>

#include "recorder/process.hpp"

namespace reachscan::recorder {

namespace {

using Handler = void (*)(int);
using Action = struct sigaction;

constinit Next<int(int, const Action*, Action*)> next_sigaction("sigaction");

// The program's action for the recorder's signal.
constinit Action remembered{};

__attribute__((constructor)) void take_signal(int, char**, char** environment) {
  prepare_process(environment);
  int number = report_signal();
  if (number == 0) return;
  Action action{};
  action.sa_handler = request_report;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  next_sigaction(number, &action, nullptr);
}

Handler set_handler(Next<Handler(int, Handler)>& next, int number, Handler handler) {
  if (number != report_signal() || number == 0) return next(number, handler);
  Handler before = remembered.sa_handler;
  remembered = {};
  remembered.sa_handler = handler;
  return before;
}

constinit Next<Handler(int, Handler)> next_signal("signal");
constinit Next<Handler(int, Handler)> next_bsd_signal("bsd_signal");
constinit Next<Handler(int, Handler)> next_sysv_signal("sysv_signal");
constinit Next<Handler(int, Handler)> next_hidden_sysv_signal("__sysv_signal");

}  // namespace

}  // namespace reachscan::recorder

using namespace reachscan::recorder;

#pragma GCC visibility push(default)
extern "C" {

int sigaction(int number, const Action* action, Action* before) noexcept {
  if (number != report_signal() || number == 0) return next_sigaction(number, action, before);
  Action was = remembered;
  if (action != nullptr) remembered = *action;
  if (before != nullptr) *before = was;
  return 0;
}

Handler signal(int number, Handler handler) noexcept {
  return set_handler(next_signal, number, handler);
}

Handler bsd_signal(int number, Handler handler) noexcept {
  return set_handler(next_bsd_signal, number, handler);
}

Handler sysv_signal(int number, Handler handler) noexcept {
  return set_handler(next_sysv_signal, number, handler);
}

Handler __sysv_signal(int number, Handler handler) noexcept {
  return set_handler(next_hidden_sysv_signal, number, handler);
}

}  // extern "C"
#pragma GCC visibility pop
