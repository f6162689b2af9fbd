// Address space that a program reserves for later: terabytes with hardly any pages, such as a
// sanitizer's shadow memory or the heap of a virtual machine. Before Linux 6.7 the kernel reports
// each page of a reservation, at about 1 ms per GB, which is too long for a pause. So reservations
// are examined before the pause.
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
  // Takes time on kernels that report slowly; the target may run meanwhile.
  Reservations(pid_t pid, const PageMap& map, const std::vector<MapEntry>& entries);

  // Returns the parts of a mapping that may have pages.
  std::vector<AddressRange> used_parts(const MapEntry& entry) const;

  // Returns how many bytes in the other parts the target may have started to use since; 0 if it has
  // allocated no page table.
  std::uint64_t maybe_used_since() const;

 private:
  pid_t pid_;
  std::vector<AddressRange> unused_;
  std::uint64_t page_tables_ = 0;  // KiB
};

}  // namespace reachscan::helper
