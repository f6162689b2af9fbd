// Which parts of a mapping have pages that the program wrote to. The rest holds no pointer and is
// not read: some programs map a thousand times what they use, and reading a hole of shared memory
// would fill it for good.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "helper/page_scan.hpp"
#include "helper/process.hpp"

namespace reachscan::helper {

class PageMap {
 public:
  explicit PageMap(pid_t pid);
  ~PageMap();
  PageMap(const PageMap&) = delete;
  PageMap& operator=(const PageMap&) = delete;

  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;  // negative where it may not be read
};

// What is known of all mappings of a process; ascending.
struct Residence {
  // Of writable mappings, without such pages; those shorter than 64 KiB are left out, unless a
  // guard is in them. None where the page map cannot be read.
  std::vector<Stretch> absent;
  // With such pages, of mappings that may be read or written no longer: the program has protected
  // them since (as the loader does with what it has relocated), and can undo that. All of a mapping
  // where the page map cannot be read.
  std::vector<Stretch> protected_;

  // `shared` tells about shared memory: a clone has no pages of it yet, only the target has.
  void add(const PageMap& own, const PageMap& shared, const MapEntry& entry);
};

}  // namespace reachscan::helper
