// Compares a word of a thread's stack: as the thread sees it, and in the memory that was opened.
#include "helper/stop/same_memory.hpp"

#include <sys/ptrace.h>

#include <cerrno>
#include <optional>
#include <string>

namespace reachscan::helper {
namespace {

std::optional<long> seen_by(pid_t tid, std::uint64_t address) {
  errno = 0;
  long word = ptrace(PTRACE_PEEKDATA, tid, address, nullptr);
  return errno == 0 ? std::optional(word) : std::nullopt;
}

std::optional<long> in(const Memory& memory, std::uint64_t address) {
  long word = 0;
  return memory.try_read(address, &word, sizeof word) ? std::optional(word) : std::nullopt;
}

}  // namespace

void require_same_memory(Freeze& freeze, const Memory& memory) {
  const StoppedThread& thread = freeze.threads().front();
  std::uint64_t top = arch::stack_pointer(thread.registers) & ~std::uint64_t{sizeof(long) - 1};
  if (seen_by(thread.tid, top) == in(memory, top)) return;
  throw Failure(
      wire::Step::kReadMemory, Code::kTargetExeced,
      "process " + std::to_string(freeze.pid()) + " started another program during the scan", 0,
      thread.tid);
}

}  // namespace reachscan::helper
