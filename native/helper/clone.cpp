#include "helper/clone.hpp"

#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <fstream>

namespace reachscan::helper {
namespace {

using wire::Step;

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kHugePage = 2u << 20;
constexpr auto kCallLimit = std::chrono::seconds(10);

[[noreturn]] void fail_dead(pid_t pid, int error) {
  throw Failure(Step::kServeRequest, "no-memory",
                "the clone of the target died, probably for want of memory", error, pid);
}

}  // namespace

Clone::Clone(pid_t pid, std::uint64_t gadget) : pid_(pid), memory_(pid), gadget_(gadget) {
  move_gadget(gadget);
  // Signals to the target's process group reach the clone too; none may run a handler here.
  std::uint64_t all = ~0ull;
  ptrace(PTRACE_SETSIGMASK, pid_, sizeof all, &all);
  // If memory runs out, the clone goes first. Failing to say so harms nobody.
  std::ofstream("/proc/" + std::to_string(pid_) + "/oom_score_adj") << 1000;
}

void Clone::move_gadget(std::uint64_t gadget) {
  memory_.write(Step::kPrepareClone, gadget, arch::kSyscallGadget.data(),
                arch::kSyscallGadget.size());
  gadget_ = gadget;
}

Clone::~Clone() {
  kill(pid_, SIGKILL);
  // Reaped as a tracee; its parent (init) then reaps the rest.
  while (waitpid(pid_, nullptr, __WALL) < 0 && errno == EINTR) {
  }
}

arch::Registers Clone::registers() {
  arch::Registers registers;
  if (!arch::get_registers(pid_, registers)) fail_dead(pid_, errno);
  return registers;
}

void Clone::set_registers(arch::Registers& registers) {
  if (!arch::set_registers(pid_, registers)) fail_dead(pid_, errno);
}

void Clone::resume() {
  if (ptrace(PTRACE_CONT, pid_, nullptr, nullptr) != 0) fail_dead(pid_, errno);
}

std::int64_t Clone::call(std::uint64_t number, std::array<std::uint64_t, 6> arguments) {
  arch::Registers saved = registers();
  arch::Registers r = saved;
  r.rax = number;
  r.orig_rax = ~0ull;
  r.rdi = arguments[0];
  r.rsi = arguments[1];
  r.rdx = arguments[2];
  r.r10 = arguments[3];
  r.r8 = arguments[4];
  r.r9 = arguments[5];
  r.rip = gadget_;
  set_registers(r);
  resume();
  for (;;) {
    WaitStatus status = wait_for(pid_, Step::kServeRequest, Clock::now() + kCallLimit);
    if (!status.stopped()) fail_dead(pid_, 0);
    r = registers();
    if (status.event() == 0 && status.signal() == SIGTRAP &&
        r.rip == gadget_ + arch::kSyscallGadget.size())
      break;
    if (status.event() == 0 && (status.signal() == SIGSEGV || status.signal() == SIGBUS))
      fail_dead(pid_, EFAULT);
    resume();  // a signal for the whole process group: not for the clone
  }
  auto result = static_cast<std::int64_t>(r.rax);
  set_registers(saved);
  return result;
}

std::uint64_t Clone::map_memory(std::uint64_t length, int protection) {
  std::int64_t result = call(SYS_mmap, {0, length, static_cast<std::uint64_t>(protection),
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, ~0ull, 0});
  return result < 0 ? 0 : static_cast<std::uint64_t>(result);
}

bool Clone::replace_by_zeros(std::uint64_t page) {
  for (std::uint64_t size : {kPage, kHugePage}) {
    std::int64_t result = call(SYS_mmap, {page & ~(size - 1), size, PROT_READ,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, ~0ull, 0});
    if (result >= 0) return true;
  }
  return false;
}

}  // namespace reachscan::helper
