// Opens mapped files below a root folder, each only once.
#include "helper/core/original_files.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "helper/failure.hpp"

namespace reachscan::helper {

OriginalFile::OriginalFile(int descriptor) : descriptor_(descriptor) {
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) return;
  size_ = static_cast<std::uint64_t>(status.st_size);
  modified_ = static_cast<std::uint64_t>(status.st_mtim.tv_sec) * 1'000'000'000u +
              static_cast<std::uint64_t>(status.st_mtim.tv_nsec);
}

OriginalFile::OriginalFile(OriginalFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_),
      modified_(other.modified_) {}

OriginalFile::~OriginalFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool OriginalFile::try_read(std::uint64_t offset, void* buffer, std::size_t length) const {
  return pread(descriptor_, buffer, length, static_cast<off_t>(offset)) ==
         static_cast<ssize_t>(length);
}

ReadAt OriginalFile::reader() const {
  return [this](std::uint64_t offset, void* buffer, std::size_t length) {
    return try_read(offset, buffer, length);
  };
}

OriginalFiles::OriginalFiles(const std::string& root)
    : root_(root), folder_(open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
  if (folder_ < 0)
    throw Failure(wire::Step::kOpenTarget, Code::kBadCore,
                  "the root folder " + root + " cannot be opened: " + std::strerror(errno), errno);
}

OriginalFiles::~OriginalFiles() { close(folder_); }

// Does not open the file yet; links cannot lead out of the root folder.
int OriginalFiles::look_up(const std::string& path) const {
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  auto found = static_cast<int>(syscall(SYS_openat2, folder_, path.c_str(), &how, sizeof how));
  // Before Linux 5.6, and in containers that block the call.
  if (found < 0 && (errno == ENOSYS || errno == EPERM))
    found = open((root_ + path).c_str(), O_PATH | O_CLOEXEC);
  return found;
}

const OriginalFile* OriginalFiles::find(const std::string& path) {
  auto known = found_.find(path);
  if (known != found_.end()) return &known->second;
  int place = look_up(path);
  if (place < 0) return nullptr;
  struct stat status {};
  bool regular = fstat(place, &status) == 0 && S_ISREG(status.st_mode);
  // Avoids waiting for another process that holds a lease on it.
  int file = regular ? open(("/proc/self/fd/" + std::to_string(place)).c_str(),
                            O_RDONLY | O_NONBLOCK | O_CLOEXEC)
                     : -1;
  close(place);
  if (file < 0) return nullptr;
  return &found_.emplace(path, OriginalFile(file)).first->second;
}

}  // namespace reachscan::helper
