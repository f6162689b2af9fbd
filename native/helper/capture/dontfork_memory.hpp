// Memory that a clone does not inherit as it was: MADV_DONTFORK leaves it out, MADV_WIPEONFORK
// empties it, and rings of io_uring stay shared with the target, which soon fills them with other
// requests. The helper reads such memory from the target during the pause and puts it into the
// clone afterwards.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "helper/capture/clone.hpp"
#include "helper/target/mapped_files.hpp"
#include "helper/target/memory.hpp"
#include "helper/target/resident_pages.hpp"

namespace reachscan::helper {

class DontforkMemory {
 public:
  // Before the pause: lists where it could be. The kernel names such memory in smaps only, for
  // which it walks all page tables and lets no thread of the target map memory meanwhile: some 17
  // ms for each GB. So only kernels before 6.7 are asked, and later ones whether the clone has got
  // the pages that the target has.
  DontforkMemory(pid_t pid, MappedFiles& files);

  // While the target is stopped: finds out what `clone` was not given. It takes about a microsecond
  // for each mapping; few programs have such memory.
  void find_lost(pid_t clone);

  // Copies what is known of it while the target is stopped.
  void capture(const Memory& memory);

  // When the target runs again: whether there may be memory that nobody has looked for. `mappings`
  // are the clone's.
  bool may_miss_any(pid_t clone, const std::vector<MapEntry>& mappings) const;

  // Puts it at its place in the clone. Throws Failure(kPrepareClone).
  void restore(Clone& clone) const;

  // Bytes that were too many to copy during a pause.
  std::uint64_t left_out() const { return left_out_; }

 private:
  struct Candidate {
    MapEntry entry;
    std::uint64_t page;  // that the target has
  };
  struct Piece {
    std::uint64_t start;
    std::vector<char> bytes;
  };

  static bool is_inherited(const Candidate& candidate, const PageMap& clone,
                           const std::vector<MapEntry>& mappings);
  static std::vector<char> read(const Memory& memory, const Stretch& stretch);

  pid_t pid_;
  std::vector<Candidate> candidates_;  // what may be such memory
  std::vector<MapEntry> entries_;      // what is
  std::vector<Piece> pieces_;
  std::uint64_t left_out_ = 0;
};

}  // namespace reachscan::helper
