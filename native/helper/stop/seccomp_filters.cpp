// Reads filters with PTRACE_SECCOMP_GET_FILTER (Linux 4.4), from the newest to the oldest.
#include "helper/stop/seccomp_filters.hpp"

#include <linux/capability.h>
#include <sys/ptrace.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "helper/target/process.hpp"

namespace reachscan::helper {
namespace {

// Not in every C library's headers (linux/ptrace.h).
constexpr auto kGetFilter = static_cast<decltype(PTRACE_CONT)>(0x420c);
constexpr long kSuspendSeccomp = 1 << 21;

// Returns 0 or an error: ENOENT if the thread has no filter of that number.
int read_filter(pid_t tid, std::size_t number, std::vector<sock_filter>& program) {
  program.resize(BPF_MAXINSNS);
  long length = ptrace(kGetFilter, tid, number, program.data());
  if (length < 0) return errno;
  program.resize(static_cast<std::size_t>(length));
  return 0;
}

}  // namespace

bool is_filtered(pid_t pid, pid_t tid) {
  std::string mode = status_field(pid, tid, "Seccomp");
  return !mode.empty() && mode != "0";
}

bool has_filtered_thread(pid_t pid) {
  std::vector<pid_t> threads = list_threads(pid);
  return std::any_of(threads.begin(), threads.end(),
                     [pid](pid_t tid) { return is_filtered(pid, tid); });
}

bool may_read_filters() {
  if (is_filtered(getpid(), getpid())) return false;
  std::string effective = status_field(getpid(), getpid(), "CapEff");
  return (std::strtoull(effective.c_str(), nullptr, 16) >> CAP_SYS_ADMIN & 1) != 0;
}

bool filters_allow(pid_t tid, const std::vector<PlannedCall>& calls) {
  std::vector<sock_filter> program;
  for (std::size_t number = 0;; ++number) {
    if (int error = read_filter(tid, number, program)) return error == ENOENT && number != 0;
    bool all = std::all_of(calls.begin(), calls.end(),
                           [&](const PlannedCall& call) { return allows(program, call); });
    if (!all) return false;
  }
}

bool set_options_unfiltered(pid_t tid, long options) {
  return ptrace(PTRACE_SETOPTIONS, tid, nullptr, options | kSuspendSeccomp) == 0 ||
         ptrace(PTRACE_SETOPTIONS, tid, nullptr, options) == 0;
}

}  // namespace reachscan::helper
