// What the mappings of a process map. The file system and the file type decide, since a path can be
// anything.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "helper/target/process.hpp"
#include "helper/target/stretches.hpp"

namespace reachscan::helper {

class MappedFiles {
 public:
  // Reads which file systems are mounted where the process runs, and where we do.
  explicit MappedFiles(pid_t pid);

  // Returns the mappings of the process or its clone. Queries no file system.
  std::vector<MapEntry> mappings_of(pid_t pid);

 private:
  Backing backing_of(pid_t pid, const MapEntry& entry);
  Backing find_backing(pid_t pid, const MapEntry& entry) const;
  void read_mounts(pid_t pid);

  std::map<std::string, std::string> types_;  // file systems by device, as the kernel names it
  std::string shared_memory_;                 // the device of unnamed memory
  std::map<std::pair<std::string, std::uint64_t>, Backing> known_;
};

// The files on which somebody has a lease now. Opening one sends that process a signal, and waits
// for it.
class Leases {
 public:
  Leases();
  bool has(const MapEntry& entry) const;

 private:
  std::string lines_;  // of /proc/locks
};

// The file behind a mapping of shared memory. Only root may open it; for others, and with a lease,
// it has no data.
class SharedMemoryFile {
 public:
  SharedMemoryFile(pid_t pid, const MapEntry& entry, const Leases& leases);
  ~SharedMemoryFile();
  SharedMemoryFile(const SharedMemoryFile&) = delete;
  SharedMemoryFile& operator=(const SharedMemoryFile&) = delete;

  // Returns where the file has pages, whoever wrote them. Does not allocate any.
  std::vector<AddressRange> data() const;

  // Does not allocate either; holes read as zeros. The process does not notice.
  void read(const AddressRange& stretch, char* buffer) const;

 private:
  const MapEntry& entry_;
  int descriptor_;
};

// Returns where shared memory of these mappings has pages; nothing without permission.
std::vector<AddressRange> shared_memory_data(pid_t pid, const std::vector<MapEntry>& entries);

}  // namespace reachscan::helper
