// Traces the middleman: its birth, the calls it makes for us, and its death.
#include "helper/capture/middleman.hpp"

#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>

#include "arch/system_calls.hpp"
#include "helper/stop/realtime_priority.hpp"
#include "helper/stop/seccomp_filters.hpp"
#include "helper/stop/stops.hpp"

namespace reachscan::helper {
Middleman::Middleman(pid_t tid, Clock::time_point deadline, std::uint64_t gadget)
    : Middleman(tid, gadget) {
  wait_for_first_stop(tid, deadline);
  constexpr long kOptions = PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACESYSGOOD;
  if (!set_options_unfiltered(tid, kOptions)) fail();
  // Only once it dies with us: it must never outlive us with this priority. The target waits for
  // it, unless it works without the trampoline.
  if (gadget == 0) raise_priority(tid);
}

void Middleman::dismiss() const { kill(tid_, SIGKILL); }

Middleman::~Middleman() {
  dismiss();
  while (waitpid(tid_, nullptr, __WALL) < 0 && errno == EINTR) {
  }
}

std::int64_t Middleman::call(std::uint64_t number, const arch::CallArguments& arguments,
                             Clock::time_point deadline, const std::function<void()>& meanwhile) {
  go_to_gadget();
  run_to_call(deadline, [] {});
  arch::Registers at_entry = registers();
  arch::replace_call(at_entry, number, arguments);
  if (!arch::set_registers(tid_, at_entry)) fail();
  if (is_after_clone(run_to_call(deadline, meanwhile))) return child_of_clone(tid_);
  return arch::call_result(registers());
}

bool Middleman::run(std::uint64_t entry, std::uint64_t argument, std::uint64_t stack_end,
                    Clock::time_point deadline) {
  arch::Registers own = registers(), start = own;
  arch::begin_function(start, entry, argument, stack_end);
  if (!arch::set_registers(tid_, start)) fail();
  WaitStatus status{};
  do {
    if (ptrace(PTRACE_CONT, tid_, nullptr, nullptr) != 0) fail();
    status = wait_for(tid_, wire::Step::kRunTrampoline, deadline);
    if (!status.stopped()) fail();
  } while (status.event() != 0 || !is_fault_signal(status.signal()));
  if (!arch::set_registers(tid_, own)) fail();
  return status.signal() == SIGTRAP;
}

void Middleman::go_to_gadget() const {
  if (gadget_ == 0) return;
  arch::Registers there = registers();
  arch::resume_at(there, gadget_);
  if (!arch::set_registers(tid_, there)) fail();
}

// Signals for the target's process group are ignored here.
WaitStatus Middleman::run_to_call(Clock::time_point deadline,
                                  const std::function<void()>& meanwhile) {
  bool first = true;
  for (;;) {
    if (ptrace(PTRACE_SYSCALL, tid_, nullptr, nullptr) != 0) fail();
    if (first) meanwhile();
    first = false;
    WaitStatus status = wait_for(tid_, wire::Step::kRunTrampoline, deadline);
    if (!status.stopped()) fail();
    if (is_at_call(status) || is_after_clone(status)) return status;
  }
}

arch::Registers Middleman::registers() const {
  arch::Registers registers;
  if (!arch::get_registers(tid_, registers)) fail();
  return registers;
}

void Middleman::fail() const {
  refuse_clone(tid_, "the process that was to clone the target was killed");
}

}  // namespace reachscan::helper
