// What /proc tells about a process. Nothing here touches the process itself.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "helper/failure.hpp"

namespace reachscan::helper {

// What a mapping shows. It decides which pages may be touched.
enum class Backing : std::uint8_t {
  kNothing,       // anonymous memory
  kFile,          // a page that is not there is read from a disk
  kSharedMemory,  // a page that is not there would be allocated, for good
  kDevice,        // may react to being read
  kSecret,        // memfd_secret(): only the processes that map it can read it
  kOther,         // huge pages, files that a program serves, what is not known: as shared memory,
                  // and to read a page that is not there may take for ever
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

// A file of /proc, whole. Throws Failure(step): kTargetExited if the process is gone,
// kNotPermitted if the kernel refuses, kTooLarge if it does not end within reason.
std::string read_proc_file(pid_t pid, const char* name, wire::Step step);

// The same, but empty if it cannot be read: threads and file descriptors come and go.
std::string try_read_proc_file(pid_t pid, const char* name);

// The number that follows `key` in each line of such a file that has the key.
std::vector<std::uint64_t> numbers_after(const std::string& text, std::string_view key, int base);

std::vector<MapEntry> read_mappings(pid_t pid);

// The text of /proc/PID/maps. Throws Failure(kReadMappings) if it is not understood.
std::vector<MapEntry> parse_mappings(std::string_view text);

// All thread ids, ascending.
std::vector<pid_t> list_threads(pid_t pid);

// Whether it is a thread that the kernel runs in the process for itself, as for requests of
// io_uring: it never runs the program.
bool is_kernel_worker(pid_t pid, pid_t tid);

// Children of all its threads, ended ones included; none if the kernel does not tell.
std::vector<pid_t> children_of(pid_t pid);

// A field of /proc/PID/task/TID/status, without leading blanks; empty if the kernel does not print
// it or the thread has ended.
std::string status_field(pid_t pid, pid_t tid, const char* field);

// The id that a thread knows itself by: the one in its own pid namespace.
pid_t inner_id(pid_t pid, pid_t tid);

// What a link in /proc names, if that is short; empty if it cannot be read.
std::string read_link(const std::string& link);

// The links in /proc/PID/fd and the first 64 bytes of what they name; none if that may not be read.
std::map<std::string, std::string> list_descriptors(pid_t pid);

// The first 64 KiB of it.
std::vector<std::string> command_line(pid_t pid);
std::string executable_path(pid_t pid);
std::string thread_name(pid_t pid, pid_t tid);

}  // namespace reachscan::helper
