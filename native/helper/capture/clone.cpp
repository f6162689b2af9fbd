// Serves a frozen clone: its system calls, its threads, and its end.
#include "helper/capture/clone.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include "arch/address_space.hpp"
#include "helper/stop/scheduling.hpp"
#include "helper/stop/seccomp_filters.hpp"
#include "helper/target/process.hpp"

namespace reachscan::helper {
namespace {

using wire::Step;

constexpr std::uint64_t kThreadStackBytes = 64 << 10;
constexpr auto kCallLimit = std::chrono::seconds(10);

[[noreturn]] void fail_clone_died(pid_t pid, int error) {
  throw Failure(Step::kServeRequest, Code::kNoMemory,
                "the clone of the target died, probably for want of memory", error, pid);
}

// Drops the target's scheduling: it may have real-time priority or processors of its own. Where
// that is not permitted, failing is harmless.
void schedule_as_ourselves(pid_t pid) {
  cpu_set_t processors;
  if (sched_getaffinity(0, sizeof processors, &processors) == 0)
    sched_setaffinity(pid, sizeof processors, &processors);
  schedule(pid, SCHED_OTHER, 0);
  setpriority(PRIO_PROCESS, static_cast<id_t>(pid), getpriority(PRIO_PROCESS, 0));
}

void reap(pid_t tid) {
  while (waitpid(tid, nullptr, __WALL) < 0 && errno == EINTR) {
  }
}

}  // namespace

Clone::Clone(pid_t pid, std::uint64_t gadget) : Tracee(pid, gadget), memory_(pid) {
  move_gadget(gadget);
  schedule_as_ourselves(pid);
  // Signals to the target's process group also reach the clone; none may run a handler here.
  std::uint64_t all = ~0ull;
  ptrace(PTRACE_SETSIGMASK, pid, sizeof all, &all);
}

void Clone::move_gadget(std::uint64_t gadget) {
  write_code(gadget, arch::reachscan_gadget, arch::gadget_size());
  gadget_ = gadget;
}

// Writing to read-only memory through /proc/PID/mem may be forbidden (proc_mem.force_override); a
// tracer may always write words.
void Clone::write_code(std::uint64_t address, const unsigned char* code, std::size_t length) {
  if (memory_.try_write(address, code, length)) return;
  for (std::size_t done = 0; done < length; done += sizeof(long)) {
    auto* at = reinterpret_cast<void*>(address + done);
    errno = 0;
    long word = ptrace(PTRACE_PEEKTEXT, pid(), at, nullptr);
    std::memcpy(&word, code + done, std::min(sizeof word, length - done));
    if (errno != 0 || ptrace(PTRACE_POKETEXT, pid(), at, word) != 0)
      throw Failure(Step::kPrepareClone, Code::kInternal, "cannot write code to the clone", errno,
                    pid(), address);
  }
}

Clone::~Clone() {
  end_watch_.reset();
  kill(pid(), SIGKILL);
  // Reaps the tracees, the first thread last; their parent (init) then reaps the rest.
  for (const Tracee& thread : added_) reap(thread.tid());
  reap(pid());
}

arch::Registers Tracee::registers() {
  arch::Registers registers;
  if (!arch::get_registers(tid_, registers)) fail_clone_died(tid_, errno);
  return registers;
}

void Tracee::set_registers(arch::Registers& registers) {
  if (!arch::set_registers(tid_, registers)) fail_clone_died(tid_, errno);
}

void Tracee::resume() {
  if (ptrace(PTRACE_CONT, tid_, nullptr, nullptr) != 0) fail_clone_died(tid_, errno);
}

std::int64_t Tracee::call(std::uint64_t number, std::array<std::uint64_t, 6> arguments) {
  arch::Registers saved = registers();
  arch::Registers r = saved;
  arch::begin_call(r, gadget_, number, arguments);
  set_registers(r);
  resume();
  for (;;) {
    WaitStatus status = wait_for(tid_, Step::kServeRequest, Clock::now() + kCallLimit);
    if (!status.stopped()) fail_clone_died(tid_, 0);
    r = registers();
    if (status.event() == 0 && status.signal() == SIGTRAP && arch::is_after_gadget(r, gadget_))
      break;
    if (status.event() == 0 && (status.signal() == SIGSEGV || status.signal() == SIGBUS))
      fail_clone_died(tid_, EFAULT);
    resume();  // a signal for the whole process group: not for the clone
  }
  std::int64_t result = arch::call_result(r);
  set_registers(saved);
  return result;
}

std::uint64_t Tracee::map_memory(std::uint64_t length, int protection) {
  std::int64_t result =
      call(arch::kMapCall, {0, length, static_cast<std::uint64_t>(protection),
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, ~0ull, 0});
  return result < 0 ? 0 : static_cast<std::uint64_t>(result);
}

void Tracee::unmap_memory(std::uint64_t address, std::uint64_t length) {
  call(SYS_munmap, {address, length, 0, 0, 0, 0});
}

bool Tracee::replace_by_zeros(std::uint64_t page) {
  for (std::uint64_t size : {arch::kPage, arch::kHugePage}) {
    std::int64_t result = call(arch::kMapCall, {page & ~(size - 1), size, PROT_READ,
                                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, ~0ull, 0});
    if (result >= 0) return true;
  }
  // Nothing can be mapped over sealed memory, but a guard page in it can become one of zeros.
  constexpr std::uint64_t kRemoveGuard = 103;  // MADV_GUARD_REMOVE, Linux 6.13
  return call(SYS_madvise, {page, arch::kPage, kRemoveGuard, 0, 0, 0}) >= 0;
}

void Clone::close_files() {
  // This call does not exist before Linux 5.9: then they stay open as long as the clone exists.
  call(SYS_close_range, {0, ~0u, 0, 0, 0, 0});
}

void Clone::kill_with(pid_t process) { end_watch_.emplace(process, pid()); }

Tracee* Clone::direct_thread(std::size_t number, std::uint64_t entry, std::uint64_t argument) {
  if (number == added_.size() && !add_thread()) return nullptr;
  Added& thread = added_[number];
  if (!wait_for(thread.tid(), Step::kServeRequest, Clock::now() + kCallLimit).stopped())
    fail_clone_died(thread.tid(), ECHILD);
  arch::Registers start = thread.registers();
  arch::begin_function(start, entry, argument, thread.stack_end);
  thread.set_registers(start);
  return &thread;
}

std::chrono::nanoseconds Clone::processor_time() const {
  clockid_t clock{};
  timespec used{};
  int error = clock_getcpuclockid(pid(), &clock);
  if (error != 0) fail_clone_died(pid(), error);
  if (clock_gettime(clock, &used) != 0) fail_clone_died(pid(), errno);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

bool Clone::has_lost_thread() const {
  return std::any_of(added_.begin(), added_.end(), [](const Tracee& thread) {
    siginfo_t info{};
    constexpr int kLook = WNOHANG | WEXITED | __WALL | WNOWAIT;
    auto id = static_cast<id_t>(thread.tid());
    // Stops of a traced thread are reported even without WSTOPPED.
    return waitid(P_PID, id, &info, kLook) == 0 && info.si_pid != 0 &&
           (info.si_code == CLD_EXITED || info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED);
  });
}

bool Clone::add_thread() {
  std::uint64_t stack = map_memory(kThreadStackBytes, PROT_READ | PROT_WRITE);
  if (stack == 0) return false;
  // The kernel attaches us to the new thread, which dies with us like this one.
  if (!set_options_unfiltered(pid(), PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE))
    fail_clone_died(pid(), errno);
  constexpr std::uint64_t kFlags =
      CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
  if (call(SYS_clone, {kFlags, stack + kThreadStackBytes, 0, 0, 0, 0}) < 0) return false;
  // The call returns the thread's id in the target's PID namespace, not in ours.
  for (pid_t tid : list_threads(pid())) {
    bool known = tid == pid() || std::any_of(added_.begin(), added_.end(),
                                             [tid](const Tracee& t) { return t.tid() == tid; });
    if (known) continue;
    added_.push_back({Tracee(tid, gadget_), stack + kThreadStackBytes});
    return true;
  }
  return false;
}

void release_files(Clone& clone, Descriptors descriptors, pid_t target) {
  if (descriptors == Descriptors::kShared) {
    clone.kill_with(target);
  } else {
    clone.close_files();
  }
}

}  // namespace reachscan::helper
