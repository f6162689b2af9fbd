// Reads and writes /proc/PID/mem in pieces until everything is transferred or no more arrives.
#include "helper/target/memory.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace reachscan::helper {

using wire::Step;

Memory::Memory(pid_t pid) : pid_(pid) {
  std::string path = "/proc/" + std::to_string(pid) + "/mem";
  fd_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd_ >= 0) return;
  bool gone = errno == ENOENT || errno == ESRCH;
  throw Failure(
      Step::kOpenTarget, gone ? Code::kTargetExited : Code::kNotPermitted,
      "cannot open the memory of process " + std::to_string(pid) + ": " + std::strerror(errno),
      errno, pid);
}

Memory::~Memory() { close(fd_); }

std::size_t Memory::read_prefix(std::uint64_t address, void* buffer, std::size_t length) const {
  std::size_t done = 0;
  while (done < length) {
    ssize_t count = pread(fd_, static_cast<char*>(buffer) + done, length - done,
                          static_cast<off_t>(address + done));
    if (count <= 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

bool Memory::try_read(std::uint64_t address, void* buffer, std::size_t length) const {
  return read_prefix(address, buffer, length) == length;
}

bool Memory::try_write(std::uint64_t address, const void* buffer, std::size_t length) const {
  ssize_t count = pwrite(fd_, buffer, length, static_cast<off_t>(address));
  return count == static_cast<ssize_t>(length);
}

void Memory::read(Step step, std::uint64_t address, void* buffer, std::size_t length) const {
  if (!try_read(address, buffer, length))
    throw Failure(step, Code::kInternal, "cannot read memory of process " + std::to_string(pid_),
                  errno, pid_, address);
}

void Memory::write(Step step, std::uint64_t address, const void* buffer, std::size_t length) const {
  if (!try_write(address, buffer, length))
    throw Failure(step, Code::kInternal, "cannot write memory of process " + std::to_string(pid_),
                  errno, pid_, address);
}

}  // namespace reachscan::helper
