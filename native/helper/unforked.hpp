// Memory that a clone does not inherit as it was: MADV_DONTFORK leaves it out, MADV_WIPEONFORK
// empties it, and rings of io_uring stay shared with the target, which soon fills them with other
// requests. It is read from the target during the pause and put into the clone afterwards.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "helper/clone.hpp"
#include "helper/memory.hpp"

namespace reachscan::helper {

class UnforkedMemory {
 public:
  // Lists it; before the pause, because the kernel walks all page tables for the answer.
  explicit UnforkedMemory(pid_t pid);

  // Copies it while the target is stopped.
  void capture(const Memory& memory);

  // Puts it at its place in the clone. Throws Failure(kPrepareClone).
  void restore(Clone& clone) const;

  // Bytes that were too many to copy during a pause.
  std::uint64_t left_out() const { return left_out_; }

 private:
  struct Range {
    std::uint64_t start;
    std::uint64_t end;
    std::vector<char> bytes;
  };

  std::vector<Range> ranges_;
  std::uint64_t left_out_ = 0;
};

}  // namespace reachscan::helper
