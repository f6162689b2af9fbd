// Forks the process that receives the copy, and hands it over stopped, with no memory that the
// kernel writes to.
#include "helper/capture/copy_host.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "arch/address_space.hpp"
#include "arch/system_calls.hpp"
#include "helper/failure.hpp"
#include "helper/stop/wait.hpp"
#include "helper/target/process.hpp"

namespace reachscan::helper {
namespace {

using arch::kPage;
using wire::Step;

constexpr std::uint64_t kLowestBridge = 0x10000000;
constexpr auto kStartLimit = std::chrono::seconds(5);

// glibc 2.35 or later.
extern "C" __attribute__((weak)) const std::ptrdiff_t __rseq_offset;
extern "C" __attribute__((weak)) const unsigned int __rseq_size;

[[noreturn]] void fail(const std::string& what, int error, pid_t pid) {
  throw Failure(Step::kBuildCopy, Code::kInternal, what + ": " + std::strerror(error), error, pid);
}

// The C library has registered a word in its memory that the kernel writes on every return to user
// mode (restartable sequences). That memory is about to be unmapped.
void forget_restartable_sequences() {
  if (&__rseq_size == nullptr || __rseq_size == 0) return;
  constexpr unsigned kUnregister = 1;
  char* area = static_cast<char*>(__builtin_thread_pointer()) + __rseq_offset;
  for (unsigned length : {32u, __rseq_size})
    if (syscall(SYS_rseq, area, length, kUnregister, arch::kRseqSignature) == 0) return;
}

pid_t start_child() {
  pid_t parent = getpid();
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) fail("cannot start a process for the copy", errno, 0);
  pid_t child = fork();
  if (child < 0) fail("cannot start a process for the copy", errno, 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    forget_restartable_sequences();
    close(ready[0]);
    close(ready[1]);
    for (;;) pause();
  }
  char byte;
  close(ready[1]);
  while (read(ready[0], &byte, 1) < 0 && errno == EINTR) {
  }
  close(ready[0]);
  if (ptrace(PTRACE_SEIZE, child, nullptr, PTRACE_O_EXITKILL) != 0 ||
      ptrace(PTRACE_INTERRUPT, child, nullptr, nullptr) != 0)
    fail("cannot take charge of the process for the copy", errno, child);
  if (!wait_for(child, Step::kBuildCopy, Clock::now() + kStartLimit).stopped())
    fail("the process for the copy died", ECHILD, child);
  return child;
}

}  // namespace

bool occupied(const std::vector<MapEntry>& mappings, std::uint64_t page) {
  return std::any_of(mappings.begin(), mappings.end(), [page](const MapEntry& entry) {
    return page + kPage > entry.start && page < entry.end;
  });
}

void must(std::int64_t result, const char* what, pid_t host) {
  if (result < 0) fail(what, static_cast<int>(-result), host);
}

std::unique_ptr<Clone> start_copy_host(const std::function<bool(std::uint64_t page)>& is_wanted) {
  pid_t host = start_child();
  auto clone =
      std::make_unique<Clone>(host, reinterpret_cast<std::uintptr_t>(arch::reachscan_gadget));
  std::vector<MapEntry> own = read_mappings(host);
  // A page that is free in both address spaces holds the child's code during the change.
  std::uint64_t bridge = kLowestBridge;
  while (occupied(own, bridge) || is_wanted(bridge)) bridge += kPage;
  must(clone->call(arch::kMapCall, {bridge, kPage, PROT_READ | PROT_EXEC,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, ~0ull, 0}),
       "cannot map memory for the copy", host);
  clone->move_gadget(bridge);
  must(clone->call(SYS_munmap, {0, bridge, 0, 0, 0, 0}), "cannot clear the copy's memory", host);
  // The kernel refuses a range beyond what it gives to programs, which may be less than kUserEnd.
  std::uint64_t end = 0;
  for (const MapEntry& entry : own)
    if (entry.start < arch::kUserEnd) end = std::max(end, entry.end);
  must(clone->call(SYS_munmap, {bridge + kPage, end - bridge - kPage, 0, 0, 0, 0}),
       "cannot clear the copy's memory", host);
  return clone;
}

}  // namespace reachscan::helper
