// Memory that a clone does not inherit unchanged: MADV_DONTFORK omits it, MADV_WIPEONFORK wipes it,
// and io_uring rings stay shared with the target, which soon fills them with other requests. The
// helper reads such memory from the target during the pause and writes it to the clone afterwards.
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
  // Called before the pause: lists where such memory may be. The kernel reveals it only in smaps,
  // for which it walks all page tables and keeps all threads of the target from mapping memory
  // meanwhile: about 17 ms per GB. So smaps is read only on kernels before 6.7; on later ones,
  // find_lost() checks whether the clone has the target's pages.
  DontforkMemory(pid_t pid, MappedFiles& files);

  // Called while the target is stopped: finds what `clone` did not get. Lists the memory again,
  // since the target may have mapped some after the first list. Takes some microseconds per mapping
  // (before Linux 6.7, as long as smaps); few programs have such memory.
  void find_lost(pid_t clone);

  // Called while the target is stopped: copies the memory found so far.
  void capture(const Memory& memory);

  // Called when the target runs again: whether there may be such memory that was not found.
  // `mappings` are the clone's, after restore().
  bool may_miss_any(pid_t clone, const std::vector<MapEntry>& mappings) const;

  // Maps the copied memory into the clone. Throws Failure(kPrepareClone).
  void restore(Clone& clone) const;

  // Bytes that were too many to copy during a pause.
  std::uint64_t left_out() const { return left_out_; }

 private:
  struct Candidate {
    MapEntry entry;
    std::uint64_t page;  // one that the target has
  };
  struct Piece {
    std::uint64_t start;
    std::vector<char> bytes;
  };

  void list();
  void drop_unmapped();
  bool has_everything(pid_t clone, const std::vector<MapEntry>& mappings) const;
  static bool is_inherited(const Candidate& candidate, const PageMap& clone,
                           const std::vector<MapEntry>& mappings);
  static std::vector<char> read(const Memory& memory, const AddressRange& stretch);

  pid_t pid_;
  MappedFiles& files_;
  std::vector<MapEntry> left_alone_;   // devices and the kernel's memory
  std::vector<Candidate> candidates_;  // what may be such memory
  std::vector<MapEntry> entries_;      // what is such memory
  std::vector<Piece> pieces_;
  std::uint64_t left_out_ = 0;
  std::uint64_t mapped_ = 0;  // pages that the target had mapped when it was stopped
};

}  // namespace reachscan::helper
