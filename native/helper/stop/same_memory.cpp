// Compares a word of a thread's stack: as the thread sees it, and in the memory that was opened.
#include "helper/stop/same_memory.hpp"

#include <sys/ptrace.h>

#include <cerrno>
#include <string>

namespace reachscan::helper {

void require_same_memory(Freeze& freeze, const Memory& memory) {
  const StoppedThread& thread = freeze.threads().front();
  std::uint64_t top = arch::stack_pointer(thread.registers) & ~std::uint64_t{sizeof(long) - 1};
  long opened = 0;
  bool is_readable = memory.try_read(top, &opened, sizeof opened);
  errno = 0;
  long seen = ptrace(PTRACE_PEEKDATA, thread.tid, top, nullptr);
  bool is_seen = errno == 0;
  if (is_seen == is_readable && (!is_seen || seen == opened)) return;
  throw Failure(
      wire::Step::kReadMemory, Code::kTargetExeced,
      "process " + std::to_string(freeze.pid()) + " started another program during the scan", 0,
      thread.tid);
}

}  // namespace reachscan::helper
