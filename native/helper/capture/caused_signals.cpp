// Tells a fault of the trampoline, and a system call of it that went elsewhere, from other signals.
#include "helper/capture/caused_signals.hpp"

#include <sys/ptrace.h>

#include <csignal>

#include "arch/registers.hpp"

namespace reachscan::helper {
const char* cause_in_trampoline(pid_t tid, const WaitStatus& status, std::uint64_t site,
                                std::size_t size) {
  // SYS_USER_DISPATCH. Kernels from 5.11 to 6.3 do not say beforehand that calls are dispatched.
  constexpr int kUserDispatch = 2;
  siginfo_t info{};
  if (ptrace(PTRACE_GETSIGINFO, tid, nullptr, &info) != 0) return nullptr;
  if (status.signal() == SIGSYS && info.si_code == kUserDispatch)
    return "the target has its system calls dispatched to user space";
  arch::Registers now;
  bool by_processor = is_fault_signal(status.signal()) && info.si_code > 0;
  if (!by_processor || !arch::get_registers(tid, now)) return nullptr;
  return arch::program_counter(now) - site < size ? "code behind the target's vdso cannot run"
                                                  : nullptr;
}

}  // namespace reachscan::helper
