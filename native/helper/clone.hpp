// The frozen clone: a stopped process with the target's memory that nobody else knows. It is killed
// when this object goes, and by the kernel if we die first.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>

#include "arch/x86_64.hpp"
#include "helper/memory.hpp"
#include "helper/wait.hpp"

namespace reachscan::helper {

class Clone {
 public:
  // `gadget` is an address in executable memory that the clone does not need any more.
  Clone(pid_t pid, std::uint64_t gadget);
  ~Clone();
  Clone(const Clone&) = delete;
  Clone& operator=(const Clone&) = delete;

  // From now on system calls are made from there.
  void move_gadget(std::uint64_t gadget);

  // Makes the clone execute one system call; its registers are as before afterwards. Returns the
  // raw result, negative errno included. Throws Failure(kServeRequest) if the clone died.
  std::int64_t call(std::uint64_t number, std::array<std::uint64_t, 6> arguments);

  // Fresh private memory, zeroed and lazily backed; 0 if the kernel refuses.
  std::uint64_t map_memory(std::uint64_t length, int protection);

  // Puts a page of zeros over unreadable memory.
  bool replace_by_zeros(std::uint64_t page);

  void set_registers(arch::Registers& registers);
  arch::Registers registers();
  void resume();

  pid_t pid() const { return pid_; }
  const Memory& memory() const { return memory_; }

 private:
  pid_t pid_;
  Memory memory_;
  std::uint64_t gadget_;
};

}  // namespace reachscan::helper
