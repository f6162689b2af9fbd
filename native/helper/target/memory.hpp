// Reads and writes another process's memory through /proc/PID/mem, which can also write to pages
// that the process itself may not write.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "helper/failure.hpp"

namespace reachscan::helper {

class Memory {
 public:
  // Throws Failure(kOpenTarget): kNotPermitted or kTargetExited.
  explicit Memory(pid_t pid);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Returns how many bytes were read: fewer than `length` if those that follow cannot be accessed.
  std::size_t read_prefix(std::uint64_t address, void* buffer, std::size_t length) const;

  // Return false if any byte of the range cannot be accessed; a read buffer is then undefined.
  bool try_read(std::uint64_t address, void* buffer, std::size_t length) const;
  struct Piece {
    std::uint64_t address;
    void* buffer;
    std::size_t length;
  };
  // Takes far less time than as many calls of try_read(). Reads what can be accessed.
  bool try_read_all(const std::vector<Piece>& pieces) const;
  // The same for words. Those that cannot be accessed are 0.
  bool try_read_words(const std::vector<std::uint64_t>& addresses,
                      std::vector<std::uint64_t>& words) const;
  bool try_write(std::uint64_t address, const void* buffer, std::size_t length) const;

  // Throw Failure(step) instead.
  void read(wire::Step step, std::uint64_t address, void* buffer, std::size_t length) const;
  void write(wire::Step step, std::uint64_t address, const void* buffer, std::size_t length) const;
  // Takes a fraction of the time where the process itself may write.
  void fill(wire::Step step, std::uint64_t address, const void* buffer, std::size_t length) const;

 private:
  pid_t pid_;
  int fd_;
};

}  // namespace reachscan::helper
