// Takes the minimum of what control groups, the machine and the overcommit rules allow.
#include "helper/target/memory_limits.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string>

#include "helper/target/process.hpp"
#include "wire/protocol.hpp"

namespace reachscan::helper {
namespace {

// Stacks and descriptors of two processes, what the kernel charges in advance, and the first pages
// that the target and the clone write to.
constexpr std::uint64_t kMargin = 4u << 20;
// What the sweeper maps: some megabytes, and one byte for this many bytes of heap.
constexpr std::uint64_t kSweeper = 8u << 20, kHeapPerSweeperByte = 32;
// What the reader of the stream may need, if it is in the target's group.
constexpr std::uint64_t kReader = 128u << 20;
// The assumed fraction of the machine's memory, if a group cannot be seen.
constexpr std::uint64_t kGuess = 4;

constexpr std::uint64_t kStrict = 2;  // of vm.overcommit_memory

std::uint64_t machine_memory(std::string_view key) {
  return number_of_key("/proc/meminfo", key) << 10;
}

std::uint64_t memory_of(pid_t pid, const char* field) {  // "2096 kB"
  std::string text = status_field(pid, pid, field);
  std::uint64_t kibibytes = 0;
  std::from_chars(text.data(), text.data() + text.size(), kibibytes);
  return kibibytes << 10;
}

std::uint64_t left(std::uint64_t limit, std::uint64_t used) {
  return limit > used ? limit - used : 0;
}

// File pages that were not used recently and need not be written back first.
std::uint64_t reclaimable(const std::string& stat, const char* inactive, const char* dirty,
                          const char* writeback) {
  return left(number_of_key(stat, inactive),
              number_of_key(stat, dirty) + number_of_key(stat, writeback));
}

std::uint64_t room_in_unified(const std::string& folder, std::uint64_t free_swap) {
  std::uint64_t limit = std::min(number_in(folder + "/memory.max", kNoLimit),
                                 number_in(folder + "/memory.high", kNoLimit));
  if (limit == kNoLimit) return kNoLimit;
  std::uint64_t swap = left(number_in(folder + "/memory.swap.max", kNoLimit),
                            number_in(folder + "/memory.swap.current", 0));
  return left(limit, number_in(folder + "/memory.current", 0)) +
         reclaimable(folder + "/memory.stat", "inactive_file", "file_dirty", "file_writeback") +
         std::min(swap, free_swap);
}

// Version 1 has one limit for memory, and another for memory and swap together.
std::uint64_t room_in_version_1(const std::string& folder, std::uint64_t free_swap) {
  constexpr std::uint64_t kUnlimited = 1ull << 62;
  std::uint64_t room = kNoLimit;
  std::uint64_t files =
      reclaimable(folder + "/memory.stat", "total_inactive_file", "total_dirty", "total_writeback");
  for (const char* kind : {"/memory.", "/memory.memsw."}) {
    std::uint64_t limit = number_in(folder + kind + "limit_in_bytes", kNoLimit);
    if (limit >= kUnlimited) continue;
    std::uint64_t swap = std::string(kind) == "/memory." ? free_swap : 0;
    room =
        std::min(room, left(limit, number_in(folder + kind + "usage_in_bytes", 0)) + files + swap);
  }
  return room;
}

std::uint64_t memory_of_sweeper(pid_t pid) {
  return kSweeper + memory_of(pid, "VmRSS") / kHeapPerSweeperByte;
}

std::string mebibytes(std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

MemoryLimits room_in_group(const ControlGroup& group, std::uint64_t free_swap) {
  MemoryLimits room;
  room.certain = group.visible;
  for (const std::string& folder : group.folders) {
    room.bytes = std::min(room.bytes, group.unified ? room_in_unified(folder, free_swap)
                                                    : room_in_version_1(folder, free_swap));
    if (number_in(folder + "/memory.oom.group", 0) != 0 ||
        number_of_key(folder + "/memory.oom_control", "oom_kill_disable") != 0)
      room.together = true;
  }
  return room;
}

MemoryLimits memory_limits(pid_t pid) {
  std::uint64_t free_swap = machine_memory("SwapFree");
  std::uint64_t available = machine_memory("MemAvailable");
  MemoryLimits room = room_in_group(control_group(pid, "memory"), free_swap);
  room.bytes = std::min(room.bytes, room.certain ? available + free_swap : available / kGuess);
  return room;
}

std::uint64_t memory_of_clone(pid_t pid, bool together) {
  std::uint64_t needed = memory_of(pid, "VmPTE") + memory_of_sweeper(pid) + kMargin;
  return together ? needed + memory_of(pid, "RssAnon") + kReader : needed;
}

void require_room_to_copy(pid_t pid) {
  std::uint64_t copied =
      memory_of(pid, "RssAnon") + memory_of(pid, "RssShmem") + memory_of(pid, "VmSwap");
  std::uint64_t needed = copied + copied / 10 + memory_of_sweeper(pid) + kMargin;
  MemoryLimits room = memory_limits(getpid());
  if (room.together) needed += kReader;
  if (needed <= room.bytes) return;
  throw Failure(wire::Step::kReadMemory, Code::kNoMemory,
                "a copy of process " + std::to_string(pid) + " takes " + mebibytes(needed) +
                    ", and reachscan" + describe(room),
                ENOMEM, pid);
}

std::string describe(const MemoryLimits& room) {
  if (room.certain) return " has " + mebibytes(room.bytes) + " of memory left";
  return " may have as little as " + mebibytes(room.bytes) +
         " of memory left, for its control group cannot be seen from here";
}

void prefer_as_oom_victim(pid_t pid) {
  int file =
      open(("/proc/" + std::to_string(pid) + "/oom_score_adj").c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  [[maybe_unused]] ssize_t written = write(file, "1000", 4);
  close(file);
}

std::uint64_t commit_headroom() {
  if (number_in("/proc/sys/vm/overcommit_memory", 0) != kStrict) return kNoLimit;
  return left(machine_memory("CommitLimit"), machine_memory("Committed_AS"));
}

std::uint64_t commit_of_clone(pid_t pid) {
  std::uint64_t bytes = 0;
  for (const MapEntry& entry : read_mappings(pid))
    if ((entry.perms & wire::kWrite) != 0 && (entry.perms & wire::kShared) == 0)
      bytes += entry.end - entry.start;
  return bytes;
}

// Private ones are listed as a file that nobody can open.
std::uint64_t private_huge_page_bytes(pid_t pid) {
  std::uint64_t all = memory_of(pid, "HugetlbPages"), bytes = 0;
  if (all == 0) return 0;
  for (const MapEntry& entry : read_mappings(pid))
    if ((entry.perms & wire::kShared) == 0 && entry.path.rfind("/anon_hugepage", 0) == 0)
      bytes += entry.end - entry.start;
  return std::min(bytes, all);
}

// Each pool has a folder, such as hugepages-2048kB.
std::uint64_t free_huge_page_bytes() {
  constexpr char kPools[] = "/sys/kernel/mm/hugepages", kPrefix[] = "hugepages-";
  DIR* directory = opendir(kPools);
  std::uint64_t bytes = 0;
  while (const dirent* entry = directory == nullptr ? nullptr : readdir(directory)) {
    std::string name = entry->d_name, pool = std::string(kPools) + "/" + name;
    if (name.rfind(kPrefix, 0) != 0) continue;
    std::uint64_t size = std::strtoull(name.c_str() + sizeof kPrefix - 1, nullptr, 10) << 10;
    bytes +=
        size * left(number_in(pool + "/free_hugepages", 0), number_in(pool + "/resv_hugepages", 0));
  }
  if (directory != nullptr) closedir(directory);
  return bytes;
}

}  // namespace reachscan::helper
