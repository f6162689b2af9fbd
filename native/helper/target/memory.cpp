// Reads and writes /proc/PID/mem in pieces until everything is transferred or no more arrives.
#include "helper/target/memory.hpp"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
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

bool Memory::try_read_all(const std::vector<Piece>& pieces) const {
  bool all = true;
  std::vector<iovec> ours, theirs;
  for (std::size_t first = 0; first < pieces.size(); first += IOV_MAX) {
    std::size_t length = 0, end = std::min<std::size_t>(first + IOV_MAX, pieces.size());
    ours.clear();
    theirs.clear();
    for (std::size_t i = first; i < end; ++i) {
      ours.push_back({pieces[i].buffer, pieces[i].length});
      theirs.push_back({reinterpret_cast<void*>(pieces[i].address), pieces[i].length});
      length += pieces[i].length;
    }
    ssize_t done = process_vm_readv(pid_, ours.data(), ours.size(), theirs.data(), end - first, 0);
    if (done == static_cast<ssize_t>(length)) continue;
    // Not every kernel has this call, and it does not read what is mapped without access.
    for (std::size_t i = first; i < end; ++i)
      all &= try_read(pieces[i].address, pieces[i].buffer, pieces[i].length);
  }
  return all;
}

bool Memory::try_read_words(const std::vector<std::uint64_t>& addresses,
                            std::vector<std::uint64_t>& words) const {
  words.assign(addresses.size(), 0);
  std::vector<Piece> pieces(addresses.size());
  for (std::size_t i = 0; i < pieces.size(); ++i)
    pieces[i] = {addresses[i], &words[i], sizeof words[i]};
  return try_read_all(pieces);
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

void Memory::fill(Step step, std::uint64_t address, const void* buffer, std::size_t length) const {
  iovec ours{const_cast<void*>(buffer), length};
  iovec theirs{reinterpret_cast<void*>(address), length};
  if (process_vm_writev(pid_, &ours, 1, &theirs, 1, 0) == static_cast<ssize_t>(length)) return;
  // Not every kernel has this call.
  write(step, address, buffer, length);
}

}  // namespace reachscan::helper
