// Tells a fault of the trampoline, and a system call of it that went elsewhere, from other signals.
#include "helper/capture/caused_signals.hpp"

#include <sys/ptrace.h>

#include <algorithm>
#include <csignal>
#include <iterator>

#include "arch/registers.hpp"

namespace reachscan::helper {
namespace {

constexpr int kUserDispatch =
    2;  // SYS_USER_DISPATCH: kernels from 5.11 to 6.3 do not show it before

bool is_fault(int signal) {
  constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE};
  return std::find(std::begin(kFaults), std::end(kFaults), signal) != std::end(kFaults);
}

}  // namespace

const char* cause_in_trampoline(pid_t tid, const WaitStatus& status, std::uint64_t site,
                                std::size_t size) {
  siginfo_t info{};
  if (ptrace(PTRACE_GETSIGINFO, tid, nullptr, &info) != 0) return nullptr;
  if (status.signal() == SIGSYS && info.si_code == kUserDispatch)
    return "the target has its system calls dispatched to user space";
  arch::Registers now;
  bool by_processor = is_fault(status.signal()) && info.si_code > 0;
  if (!by_processor || !arch::get_registers(tid, now)) return nullptr;
  return arch::program_counter(now) - site < size ? "code behind the target's vdso cannot run"
                                                  : nullptr;
}

}  // namespace reachscan::helper
