// The frozen clone: a stopped process with the target's memory, unknown to all other processes. It
// is killed with all of its threads by the destructor, or by the kernel if we die first.
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

  // Executes one system call and restores the registers. Returns the raw result, negative errno
  // included. Throws Failure(kServeRequest) if the clone died.
  std::int64_t call(std::uint64_t number, std::array<std::uint64_t, 6> arguments);

  // Returns new private memory, zeroed and lazily backed; 0 if the kernel refuses.
  std::uint64_t map_memory(std::uint64_t length, int protection);
  // Unmaps such memory. If the kernel refuses, it stays until the clone ends.
  void unmap_memory(std::uint64_t address, std::uint64_t length);

  // Maps a page of zeros over unreadable memory.
  bool replace_by_zeros(std::uint64_t page);

  void set_registers(arch::Registers& registers);
  arch::Registers registers();
  void resume();

  pid_t tid() const { return tid_; }

  // Code that stops the thread, for functions to return to.
  std::uint64_t breakpoint() const { return arch::gadget_breakpoint(gadget_); }
  bool is_at_breakpoint(const arch::Registers& registers) const {
    return arch::is_after_gadget(registers, gadget_);
  }

 protected:
  pid_t tid_;
  std::uint64_t gadget_;
};

// The clone as a whole and its first thread.
class Clone : public Tracee {
 public:
  // `gadget` is an address in executable memory that the clone no longer needs.
  Clone(pid_t pid, std::uint64_t gadget);
  ~Clone();
  Clone(const Clone&) = delete;
  Clone& operator=(const Clone&) = delete;

  // System calls are made at `gadget` from now on.
  void move_gadget(std::uint64_t gadget);

  // Writes to executable memory. Throws Failure(kPrepareClone, kInternal).
  void write_code(std::uint64_t address, const unsigned char* code, std::size_t length);

  // Closes every descriptor. The table must be the clone's own, and no server may be notified of a
  // close.
  void close_files();

  // For a clone that shares the descriptor table of another process: what that process has open
  // must be closed when it ends, so the clone is killed then.
  void kill_with(pid_t process);

  // Stops the thread with this number, where 0 is the first one created here, and moves it to the
  // instruction at `entry`; a function that starts there gets its argument. Creates the thread if
  // `number` is the number of existing ones. Returns null if the kernel refuses.
  Tracee* direct_thread(std::size_t number, std::uint64_t entry, std::uint64_t argument);

  // Returns the processor time used by all of its threads.
  std::chrono::nanoseconds processor_time() const;

  // Returns whether a thread other than the first one was killed. The kernel reports the end of the
  // first one only after all others have been waited for.
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

// How the clone gets the target's descriptor table.
enum class Descriptors { kCopied, kShared };

// Ensures that what the target closes gets closed: peers wait for that, and locks and ports depend
// on it.
void release_files(Clone& clone, Descriptors descriptors, pid_t target);

}  // namespace reachscan::helper
