// What /proc shows of a process. Nothing here touches the process itself.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "helper/failure.hpp"

namespace reachscan::helper {

// What a mapping maps, which decides which of its pages may be touched.
enum class Backing : std::uint8_t {
  kNothing,       // anonymous memory
  kFile,          // an absent page is read from disk
  kSharedMemory,  // touching an absent page would allocate it, permanently
  kDevice,        // may react to being read
  kSecret,        // memfd_secret(): only processes that map it can read it
  kOther,         // huge pages, files served by a program, unknown files: like shared
                  // memory, and reading an absent page may take forever
};

struct MapEntry {
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t offset;
  std::uint64_t inode;
  std::string device;
  std::uint32_t perms;                // wire::Permission
  std::string path;                   // as the kernel prints it; empty for plain anonymous memory
  Backing backing = Backing::kOther;  // of a file, only MappedFiles knows
};

// Reads a whole file of /proc. Throws Failure(step): kTargetExited if the process is gone,
// kNotPermitted if the kernel refuses, kTooLarge if it is unreasonably long.
std::string read_proc_file(pid_t pid, const char* name, wire::Step step);

// The same, but returns an empty string on failure: threads and file descriptors may disappear at
// any time.
std::string try_read_proc_file(pid_t pid, const char* name);

// Returns the number that follows `key` in each line of such a file that contains the key.
std::vector<std::uint64_t> numbers_after(std::string_view text, std::string_view key, int base);

std::vector<MapEntry> read_mappings(pid_t pid);

// Returns the end of the first thread's stack; 0 if it is not known.
std::uint64_t end_of_main_stack(pid_t pid);

// Parses the text of /proc/PID/maps. Throws Failure(kReadMappings) if it is malformed.
std::vector<MapEntry> parse_mappings(std::string_view text);

// Returns the fields of a file "stat" from the third on. The name before them may contain anything.
std::string_view behind_name(std::string_view stat);

// All thread ids, sorted.
std::vector<pid_t> list_threads(pid_t pid);

// Puts the first thread first, then the others, ascending. These may be lower, since numbers are
// used again.
void sort_threads(std::vector<pid_t>& threads, pid_t first);

// Returns whether the kernel runs this thread in the process for its own purposes, such as requests
// of io_uring: it never runs the program.
bool is_kernel_worker(pid_t pid, pid_t tid);

// Returns the children of all its threads, including exited ones; none if the kernel does not list
// them.
std::vector<pid_t> children_of(pid_t pid);

// Returns a field of /proc/PID/task/TID/status, without leading blanks; empty if the kernel does
// not print it or the thread has exited.
std::string status_field(pid_t pid, pid_t tid, const char* field);

// Returns a thread's id in its own PID namespace.
pid_t inner_id(pid_t pid, pid_t tid);

// Returns the target of a short link in /proc; empty if it cannot be read.
std::string read_link(const std::string& link);

// Returns the links in /proc/PID/fd and the first 64 bytes of their targets; none without
// permission.
std::map<std::string, std::string> list_descriptors(pid_t pid);

// Returns the first 64 KiB of it.
std::vector<std::string> command_line(pid_t pid);
std::string executable_path(pid_t pid);
std::string thread_name(pid_t pid, pid_t tid);

}  // namespace reachscan::helper
