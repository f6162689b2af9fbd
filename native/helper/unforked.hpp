// Memory that a clone does not inherit as it was: MADV_DONTFORK leaves it out, MADV_WIPEONFORK
// empties it, and rings of io_uring stay shared with the target, which soon fills them with other
// requests. It is read from the target during the pause and put into the clone afterwards.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "helper/clone.hpp"
#include "helper/mapped_files.hpp"
#include "helper/memory.hpp"
#include "helper/residence.hpp"

namespace reachscan::helper {

class UnforkedMemory {
 public:
  // Before the pause: lists where it could be. The kernel names such memory in smaps only, for
  // which it walks all page tables and lets no thread of the target map memory meanwhile: some 17
  // ms for each GB. So only kernels before 6.7 are asked.
  UnforkedMemory(pid_t pid, MappedFiles& files);

  // Copies it while the target is stopped. What the target has pages of and `clone` has not, was
  // not inherited.
  void capture(const Memory& memory, pid_t clone);

  // Puts it at its place in the clone. Throws Failure(kPrepareClone).
  void restore(Clone& clone) const;

  // Bytes that were too many to copy during a pause.
  std::uint64_t left_out() const { return left_out_; }

 private:
  struct Piece {
    std::uint64_t start;
    std::vector<char> bytes;
  };

  void keep_lost(pid_t clone);
  static std::vector<char> read(const Memory& memory, const Stretch& stretch);

  pid_t pid_;
  std::vector<MapEntry> entries_;  // what may be lost; from capture() on, what is
  bool known_;                     // whether it is known beforehand
  std::vector<Piece> pieces_;
  std::uint64_t left_out_ = 0;
};

}  // namespace reachscan::helper
