// The current state of the files that a process had mapped. A dump omits what can be read from
// them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "helper/target/elf_image.hpp"

namespace reachscan::helper {

// A regular file that is open for reading.
class OriginalFile {
 public:
  explicit OriginalFile(int descriptor);
  OriginalFile(OriginalFile&& other) noexcept;
  OriginalFile& operator=(OriginalFile&&) = delete;
  ~OriginalFile();

  int descriptor() const { return descriptor_; }
  std::uint64_t size() const { return size_; }
  // Nanoseconds since 1970.
  std::uint64_t modified() const { return modified_; }
  bool try_read(std::uint64_t offset, void* buffer, std::size_t length) const;
  ReadAt reader() const;

 private:
  int descriptor_;
  std::uint64_t size_ = 0;
  std::uint64_t modified_ = 0;
};

class OriginalFiles {
 public:
  // Paths are resolved below this folder, as they were for the process.
  explicit OriginalFiles(const std::string& root);
  ~OriginalFiles();
  OriginalFiles(const OriginalFiles&) = delete;
  OriginalFiles& operator=(const OriginalFiles&) = delete;

  // Returns the file that a path leads to; null if there is none, or it is not a regular file:
  // opening another kind could have side effects. Files stay open.
  const OriginalFile* find(const std::string& path);

 private:
  int look_up(const std::string& path) const;

  std::string root_;
  int folder_;
  std::map<std::string, OriginalFile> found_;
};

}  // namespace reachscan::helper
