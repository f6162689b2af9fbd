// Which pages of a mapping are present. Absent pages are left alone: some programs map a thousand
// times what they use, reading a hole of shared memory would fill it for good, and a page that the
// target itself serves would never arrive while the target is stopped.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "helper/target/process.hpp"
#include "helper/target/stretches.hpp"

namespace reachscan::helper {

class Reservations;

class PageMap {
 public:
  explicit PageMap(pid_t pid, const Reservations* reservations = nullptr);
  ~PageMap();
  PageMap(const PageMap&) = delete;
  PageMap& operator=(const PageMap&) = delete;

  int descriptor() const { return descriptor_; }

  // The parts of a mapping that need to be looked at, if all pages are listed one by one.
  std::vector<Stretch> used_parts(const MapEntry& entry) const;

  // The first page of a mapping; of a private one, that is neither a file's nor the page of zeros.
  // 0 if there is none, nothing if the kernel cannot tell that at once (before Linux 6.7).
  std::optional<std::uint64_t> first_page(const MapEntry& entry) const;

 private:
  int descriptor_;  // negative where it may not be read
  const Reservations* reservations_;
};

// Pages that can be read without making one or waiting for one. None where the page map cannot be
// read.
std::vector<Stretch> present_pages(const PageMap& map, const MapEntry& entry);

// What is known of all mappings of a process; ascending.
struct ResidentPages {
  // Holds zeros. Gaps shorter than 64 KiB are left out, unless a guard is in them.
  std::vector<Stretch> absent;
  // Must not be touched.
  std::vector<Stretch> untouchable;
  // With pages that the program wrote to, of mappings that may be read or written no longer: the
  // program has protected them since (as the loader does with what it has relocated), and can undo
  // that.
  std::vector<Stretch> protected_;

  // `target` tells about memory that a clone has no pages of yet. Returns which pages hold
  // something that the program wrote.
  std::vector<Stretch> add(const PageMap& own, const PageMap& target, const MapEntry& entry);

  bool may_touch(std::uint64_t address, std::uint64_t length) const;
};

}  // namespace reachscan::helper
