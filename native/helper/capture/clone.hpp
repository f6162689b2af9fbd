// The frozen clone: a stopped process with the target's memory that nobody else knows. It is killed
// with all of its threads when this object goes, and by the kernel if we die first.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

#include "arch/system_calls.hpp"
#include "helper/stop/end_watch.hpp"
#include "helper/stop/wait.hpp"
#include "helper/target/memory.hpp"

namespace reachscan::helper {

// A stopped thread of the clone.
class Tracee {
 public:
  // `gadget` is the address of a system call instruction and a breakpoint.
  Tracee(pid_t tid, std::uint64_t gadget) : tid_(tid), gadget_(gadget) {}

  // Executes one system call; the registers are as before afterwards. Returns the raw result,
  // negative errno included. Throws Failure(kServeRequest) if the clone died.
  std::int64_t call(std::uint64_t number, std::array<std::uint64_t, 6> arguments);

  // Fresh private memory, zeroed and lazily backed; 0 if the kernel refuses.
  std::uint64_t map_memory(std::uint64_t length, int protection);
  // Gives such memory back. If the kernel refuses, it only goes later, with the clone.
  void unmap_memory(std::uint64_t address, std::uint64_t length);

  // Puts a page of zeros over unreadable memory.
  bool replace_by_zeros(std::uint64_t page);

  void set_registers(arch::Registers& registers);
  arch::Registers registers();
  void resume();

  pid_t tid() const { return tid_; }

 protected:
  pid_t tid_;
  std::uint64_t gadget_;
};

// The clone as a whole and its first thread.
class Clone : public Tracee {
 public:
  // `gadget` is an address in executable memory that the clone does not need any more.
  Clone(pid_t pid, std::uint64_t gadget);
  ~Clone();
  Clone(const Clone&) = delete;
  Clone& operator=(const Clone&) = delete;

  // From now on system calls are made from there.
  void move_gadget(std::uint64_t gadget);

  // Closes every descriptor of its table. It must be the clone's own, and nobody told of a close.
  void close_files();

  // It shares the table of another process: what that process has open is to be closed when it
  // ends, so the clone is killed then.
  void end_with(pid_t process);

  // Stops the thread of that number, the first one besides this being number 0, and puts it before
  // the instruction at `entry`; a function that begins there finds its argument. If there are just
  // so many yet, one more is made. Null if the kernel refuses.
  Tracee* direct_thread(std::size_t number, std::uint64_t entry, std::uint64_t argument);

  // What all of its threads have used.
  std::chrono::nanoseconds processor_time() const;

  // Whether a thread besides the first one has been killed. The kernel tells of the end of the
  // first one only when all others have been waited for.
  bool has_lost_thread() const;

  pid_t pid() const { return tid_; }
  const Memory& memory() const { return memory_; }

 private:
  struct Added : Tracee {
    std::uint64_t stack_end;
  };

  bool add_thread();

  Memory memory_;
  std::deque<Added> added_;
  std::optional<EndWatch> end_watch_;
};

// What becomes of the target's descriptor table in the clone.
enum class Descriptors { kCopied, kShared };

// What the target closes is to be closed: peers wait for it, and locks and ports depend on it.
void hold_no_files(Clone& clone, Descriptors descriptors, pid_t target);

}  // namespace reachscan::helper
