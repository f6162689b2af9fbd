// Checks in /proc whether a process can be examined and stopped.
#include "helper/stop/preconditions.hpp"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "arch/address_space.hpp"
#include "arch/processor.hpp"
#include "helper/failure.hpp"
#include "helper/target/control_groups.hpp"
#include "helper/target/process.hpp"

namespace reachscan::helper {
namespace {

using wire::Step;

// On a busy machine, a page fault may wait long for its disk or for a lock.
constexpr auto kStuckAfter = std::chrono::seconds(1);
constexpr auto kPollInterval = std::chrono::milliseconds(10);

bool sleeps_uninterruptibly(pid_t pid, pid_t tid) {
  return status_field(pid, tid, "State").rfind("D", 0) == 0;
}

// Grows with every sleep: a thread whose count changes is not stuck.
std::string times_asleep(pid_t pid, pid_t tid) {
  return status_field(pid, tid, "voluntary_ctxt_switches");
}

bool is_of(const Elf64_Ehdr& header, unsigned char elf_class, std::uint16_t machine) {
  return header.e_ident[EI_CLASS] == elf_class && header.e_machine == machine;
}

bool has_short_words(const Elf64_Ehdr& header) {
  return arch::kShortElfMachine != EM_NONE && is_of(header, ELFCLASS32, arch::kShortElfMachine);
}

}  // namespace

std::string name_of(pid_t pid) { return "process " + std::to_string(pid); }

void require_process(pid_t pid) {
  std::string leader = status_field(pid, pid, "Tgid");
  if (!leader.empty() && leader != std::to_string(pid))
    throw Failure(Step::kOpenTarget, Code::kNoSuchProcess,
                  std::to_string(pid) + " is a thread of process " + leader, 0, pid);
}

void require_supported(pid_t pid) {
  std::string path = "/proc/" + std::to_string(pid) + "/exe";
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == EACCES || errno == EPERM)
      throw Failure(Step::kOpenTarget, Code::kNotPermitted,
                    "not permitted to look into " + name_of(pid) + ": " + std::strerror(errno),
                    errno, pid);
    bool exists = access(("/proc/" + std::to_string(pid)).c_str(), F_OK) == 0;
    throw Failure(Step::kOpenTarget, exists ? Code::kTargetExited : Code::kNoSuchProcess,
                  exists ? name_of(pid) + " has no program: it is a kernel thread or has ended"
                         : "there is no process " + std::to_string(pid),
                  errno, pid);
  }
  Elf64_Ehdr header{};
  ssize_t length = read(fd, &header, sizeof header);
  close(fd);
  if (length < static_cast<ssize_t>(sizeof header) ||
      (!is_of(header, ELFCLASS64, arch::kElfMachine) && !has_short_words(header)))
    throw Failure(Step::kOpenTarget, Code::kUnsupportedArchitecture,
                  name_of(pid) + std::string(" is not ") + arch::kProgramKind, 0, pid);
}

bool has_short_words(pid_t pid) {
  int fd = open(("/proc/" + std::to_string(pid) + "/exe").c_str(), O_RDONLY | O_CLOEXEC);
  Elf64_Ehdr header{};
  ssize_t length = fd < 0 ? 0 : read(fd, &header, sizeof header);
  if (fd >= 0) close(fd);
  return length == static_cast<ssize_t>(sizeof header) && has_short_words(header);
}

void require_long_words(pid_t pid, const char* why) {
  if (has_short_words(pid))
    throw Failure(Step::kOpenTarget, Code::kUnsupportedArchitecture,
                  name_of(pid) + " is a 32-bit program, which " + why, 0, pid);
}

// A thread in uninterruptible sleep cannot be stopped, and all others would be stopped meanwhile
// for nothing. A disk access is over soon; the wait for a vfork() child may not be.
void require_stoppable(pid_t pid, Clock::time_point deadline) {
  deadline = std::min(deadline, Clock::now() + kStuckAfter);
  std::vector<pid_t> asleep = list_threads(pid);
  std::map<pid_t, std::string> times;
  for (pid_t tid : asleep) times[tid] = times_asleep(pid, tid);
  for (;;) {
    std::erase_if(asleep, [&](pid_t tid) {
      return !sleeps_uninterruptibly(pid, tid) || times_asleep(pid, tid) != times[tid];
    });
    if (asleep.empty()) return;
    if (Clock::now() >= deadline) break;
    std::this_thread::sleep_for(kPollInterval);
  }
  throw Failure(Step::kOpenTarget, Code::kUnstoppable,
                is_frozen(pid)
                    ? name_of(pid) + " is frozen by its control group, and cannot be stopped"
                    : "thread " + std::to_string(asleep.front()) + " of " + name_of(pid) +
                          " is in uninterruptible sleep and cannot be stopped now",
                EBUSY, asleep.front());
}

}  // namespace reachscan::helper
