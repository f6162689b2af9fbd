// Restartable sequences (rseq): code whose abort handler the kernel jumps to if the thread was
// interrupted inside it.
#pragma once

#include <sys/ptrace.h>
#include <sys/types.h>

#include <cstdint>

#include "arch/system_calls.hpp"

namespace reachscan::helper {

// Returns where a thread in user mode resumes after an interruption. Inside a restartable sequence
// that is its abort handler, where the kernel would have sent the thread if we had not changed its
// instruction pointer. `read(address, buffer, length)` reads the thread's memory.
template <typename Read>
std::uint64_t resume_address(pid_t tid, const arch::Registers& r, Read read) {
  constexpr auto kGetRseqConfiguration = static_cast<decltype(PTRACE_CONT)>(0x420f);
  struct {
    std::uint64_t area;
    std::uint32_t size, signature, flags, reserved;
  } configuration{};
  struct {
    std::uint32_t version, flags;
    std::uint64_t start, length, abort;
  } section{};
  std::uint64_t at = arch::program_counter(r), pointer = 0;
  // Kernels before 5.13 cannot report it, which leaves the sequence unprotected.
  if (arch::in_system_call(r) ||
      ptrace(kGetRseqConfiguration, tid, sizeof configuration, &configuration) <= 0 ||
      configuration.area == 0 || !read(configuration.area + 8, &pointer, sizeof pointer) ||
      pointer == 0 || !read(pointer, &section, sizeof section))
    return at;
  return at - section.start < section.length ? section.abort : at;
}

}  // namespace reachscan::helper
