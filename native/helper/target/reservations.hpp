// Address space that a program reserves for later: terabytes with hardly any pages, like the shadow
// of a sanitizer or the heap of a virtual machine. Before Linux 6.7 the kernel describes each page
// of a reservation, at some 1 ms per GB, which is too long for a pause. So reservations are looked
// through before the pause.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "helper/target/process.hpp"
#include "helper/target/resident_pages.hpp"
#include "helper/target/stretches.hpp"

namespace reachscan::helper {

class Reservations {
 public:
  // Takes time where the kernel is slow to tell; the target may run.
  Reservations(pid_t pid, const PageMap& map, const std::vector<MapEntry>& entries);

  // The parts of a mapping that may have pages.
  std::vector<Stretch> used_parts(const MapEntry& entry) const;

  // How many bytes of memory the target may have begun to use in the other parts since; 0 if it has
  // got no page table.
  std::uint64_t maybe_used_since() const;

 private:
  pid_t pid_;
  std::vector<Stretch> unused_;
  std::uint64_t page_tables_ = 0;  // KiB
};

}  // namespace reachscan::helper
