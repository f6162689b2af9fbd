// What an ELF core file says about a process. The file may come from anywhere, so nothing in it is
// trusted.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "arch/registers.hpp"
#include "helper/failure.hpp"

namespace reachscan::helper {

// Returns the wire::Permission of a segment with these flags (PF_...).
std::uint32_t permissions(std::uint32_t flags);

struct CoreSegment {
  std::uint64_t start;  // whole pages; ascending, not overlapping
  std::uint64_t end;
  std::uint64_t offset;  // in the file
  std::uint64_t bytes;   // in the file, from `start` on; the rest was left out
  std::uint32_t perms;   // wire::Permission, as far as known
};

struct CoreThread {
  pid_t tid;
  arch::Registers registers;
  std::vector<std::uint64_t> vector_words;
};

// Part of a file that was mapped. Its permissions are not recorded.
struct CoreMappedFile {
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t offset;
  std::string path;
};

class CoreFile {
 public:
  // Throws Failure(kOpenTarget): kBadCore if it is not a core file, damaged or truncated,
  // kUnsupportedArchitecture if it is from another processor.
  explicit CoreFile(const std::string& path);
  ~CoreFile();
  CoreFile(const CoreFile&) = delete;
  CoreFile& operator=(const CoreFile&) = delete;

  int descriptor() const { return descriptor_; }
  // Approximate time of writing, in nanoseconds since 1970.
  std::uint64_t written() const { return written_; }

  pid_t pid() const { return pid_; }
  const std::string& name() const { return name_; }
  // The signal that caused the dump, if known.
  int signal() const { return signal_; }
  const std::vector<std::string>& arguments() const { return arguments_; }
  const std::vector<CoreSegment>& segments() const { return segments_; }
  const std::vector<CoreThread>& threads() const { return threads_; }
  const std::vector<CoreMappedFile>& files() const { return files_; }

  // Returns an entry of the auxiliary vector that the kernel passed to the program (AT_...); 0 if
  // there is none.
  std::uint64_t auxiliary(std::uint64_t type) const;

  // Reads memory of the process. Returns false if the file does not contain all of it.
  bool try_read(std::uint64_t address, void* buffer, std::size_t length) const;

  // Reads bytes of the file. Throws Failure(kReadMemory) if it has become shorter.
  void read_file(std::uint64_t offset, void* buffer, std::size_t length) const;

 private:
  void read_headers();
  void add_segment(std::uint64_t start, std::uint64_t bytes, std::uint64_t in_memory,
                   std::uint64_t offset, std::uint32_t flags);
  void read_notes(std::uint64_t offset, std::uint64_t length);
  void take_note(std::string_view owner, std::uint32_t type, std::string_view value);
  void take_thread(std::string_view value);
  void take_vector_state(std::string_view value);
  void take_process(std::string_view value);
  void take_auxiliary(std::string_view value);
  void take_files(std::string_view value);
  void require_whole(std::uint64_t offset, std::uint64_t length) const;

  int descriptor_;
  std::uint64_t size_ = 0;
  std::uint64_t written_ = 0;
  pid_t pid_ = 0;
  int signal_ = 0;
  std::string name_;
  std::vector<std::string> arguments_;
  std::vector<CoreSegment> segments_;
  std::vector<CoreThread> threads_;
  std::vector<CoreMappedFile> files_;
  std::map<std::uint64_t, std::uint64_t> auxiliary_;
};

}  // namespace reachscan::helper
