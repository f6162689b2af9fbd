// Checks for what a clone would kill, damage or block: filters, namespaces, limits, quotas, open
// files.
#include "helper/capture/clone_preconditions.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "helper/stop/seccomp_filters.hpp"
#include "helper/target/memory_limits.hpp"
#include "helper/target/memory_sharing.hpp"
#include "helper/target/open_files.hpp"
#include "helper/target/process.hpp"
#include "helper/target/text.hpp"

namespace reachscan::helper {
namespace {

[[noreturn]] void refuse(pid_t pid, const std::string& why, int error = 0) {
  throw Failure(wire::Step::kOpenTarget, Code::kCloneRefused,
                "process " + std::to_string(pid) + why, error, pid);
}

// A busy machine may take a while to reap orphans. Nobody knows when one ended, only when it was
// started, so that an old one may have ended just now.
constexpr double kForgottenSeconds = 5;
constexpr auto kReapingTime = std::chrono::seconds(3);
constexpr auto kPollInterval = std::chrono::milliseconds(50);
constexpr auto kSharingTime = std::chrono::milliseconds(500);
constexpr auto kSharingInterval = std::chrono::milliseconds(5);

pid_t parent_of(pid_t pid) {
  return static_cast<pid_t>(std::atoi(status_field(pid, pid, "PPid").c_str()));
}

std::string megabytes(std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

// A filter may kill the target on a clone() that it never makes itself. What a filter says can be
// read once the target is stopped.
void require_known_filters(pid_t pid) {
  if (has_filtered_thread(pid) && !may_read_filters())
    refuse(
        pid,
        " runs under a seccomp filter, which may forbid it to be cloned, and which only root may "
        "read, outside of containers");
}

// A frozen target cannot execute the few instructions that cloning takes.
void require_thawed(pid_t pid) {
  if (is_frozen(pid)) refuse(pid, " is frozen by its control group, so that nothing of it can run");
}

// Returns when a process was started, in seconds since boot: the 22nd field of its stat, where the
// second is its name.
double start_of(pid_t pid) {
  std::string text = try_read_proc_file(pid, "stat");
  std::string_view fields = behind_name(text);
  skip_words(fields, 19);
  auto ticks = number_at_start<std::uint64_t>(take_word(fields)).value_or(0);
  return static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

bool is_forgotten(pid_t pid) {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return status_field(pid, pid, "State").rfind("Z", 0) == 0 &&
         static_cast<double>(now.tv_sec) - start_of(pid) > kForgottenSeconds;
}

// Returns a zombie with the target's name that an ancestor has not collected for long, or 0.
pid_t forgotten_orphan(pid_t pid) {
  std::string name = try_read_proc_file(pid, "comm");
  for (pid_t ancestor = parent_of(pid); ancestor != 0; ancestor = parent_of(ancestor))
    for (pid_t child : children_of(ancestor))
      if (child != pid && try_read_proc_file(child, "comm") == name && is_forgotten(child))
        return child;
  return 0;
}

// Memory that the clone takes is charged to the target's control group. If that ran out while the
// clone is being created, the kernel could only kill the target.
void require_room_in_group(pid_t pid) {
  MemoryLimits room = memory_limits(pid);
  std::uint64_t needed = memory_of_clone(pid, room.together);
  if (room.bytes < needed)
    refuse(pid, describe(room) + ", and a clone takes " + megabytes(needed), ENOMEM);
}

// Under strict overcommit, the kernel commits memory for everything in the clone that the target
// may write to.
void require_room_to_commit(pid_t pid) {
  std::uint64_t room = commit_headroom(), needed = commit_of_clone(pid);
  if (room < needed)
    refuse(pid,
           " would need " + megabytes(needed) +
               " for a clone, and the kernel does not overcommit " + "more than " + megabytes(room),
           ENOMEM);
}

// The first of both to write to a huge page after the clone takes one from the pool, and the kernel
// kills it if there is none.
void require_free_huge_pages(pid_t pid) {
  std::uint64_t used = private_huge_page_bytes(pid);
  if (used == 0) return;
  std::uint64_t free = free_huge_page_bytes();
  if (used > free)
    refuse(pid,
           " uses " + megabytes(used) + " of private huge pages, and only " + megabytes(free) +
               " are left for what it writes while a clone shares them",
           ENOMEM);
}

// Two scans at once of two processes with the same memory would use the same place in it. What
// another scan makes such a process for, or vfork(), is soon over.
void require_memory_of_its_own(pid_t pid) {
  auto deadline = std::chrono::steady_clock::now() + kSharingTime;
  for (pid_t other; (other = find_sharing(pid, 0, Sharing::kYes)) > 0;) {
    if (std::chrono::steady_clock::now() >= deadline)
      refuse(pid, " shares its memory with process " + std::to_string(other));
    std::this_thread::sleep_for(kSharingInterval);
  }
}

void require_no_observed_files(pid_t pid) {
  OpenFiles files = read_open_files(pid);
  if (files.gets_fork_events)
    refuse(pid, " has a userfaultfd that is told of forks, and would hold the clone back");
  if (files.counts_events)
    refuse(pid, " has performance counters, which would count its clone, too");
  // The clone shares the descriptor table in that case.
  if (files.served && files.locked)
    refuse(pid,
           " holds fcntl() locks, which it would lose if it executed a program while a clone "
           "shares its descriptors; it has files open on a network or user-space file system, "
           "so that the clone cannot have copies of them");
}

}  // namespace

void require_able_to_run(pid_t pid) {
  require_thawed(pid);
  require_known_filters(pid);
}

void require_no_init(pid_t pid) {
  if (inner_id(pid, pid) == 1)
    refuse(pid, " is the init of its pid namespace: orphans become its children");
}

void require_clonable(pid_t pid) {
  require_able_to_run(pid);
  require_no_init(pid);
  require_memory_of_its_own(pid);
  require_no_observed_files(pid);
  require_free_huge_pages(pid);
  require_room_in_group(pid);
  require_room_to_commit(pid);
}

void require_orphans_collected(pid_t pid, std::chrono::steady_clock::time_point deadline) {
  using Clock = std::chrono::steady_clock;
  deadline = std::min(deadline, Clock::now() + kReapingTime);
  while (pid_t orphan = forgotten_orphan(pid)) {
    if (Clock::now() >= deadline)
      refuse(pid, " has left a zombie, " + std::to_string(orphan) +
                      ", that nobody collects; a clone would become another");
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace reachscan::helper
