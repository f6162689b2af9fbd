// Which pages of a mapping are present. Absent pages are not touched: some programs map a thousand
// times what they use, reading a hole of shared memory would fill it permanently, and a page that
// the target itself serves would never arrive while the target is stopped.
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

  // Returns the parts of a mapping to be examined when all pages are listed one by one.
  std::vector<AddressRange> used_parts(const MapEntry& entry) const;

  // Returns the first page of a mapping; of a private one, the first that is neither a file's nor
  // the zero page. 0 if there is none, nothing if the kernel cannot answer that at once (before
  // Linux 6.7).
  std::optional<std::uint64_t> first_page(const MapEntry& entry) const;

 private:
  int descriptor_;  // negative if it may not be read
  const Reservations* reservations_;
};

// Returns the pages that can be read without creating or waiting for one. Empty if the page map
// cannot be read.
std::vector<AddressRange> present_pages(const PageMap& map, const MapEntry& entry);

// What is known about all mappings of a process, sorted by address.
struct ResidentPages {
  // Reads as zeros. Omits gaps shorter than 64 KiB, unless they contain a guard.
  std::vector<AddressRange> absent;
  // Must not be touched.
  std::vector<AddressRange> untouchable;
  // Pages that the program wrote to, in mappings that no longer allow reading or writing: the
  // program has protected them since (as the loader does after relocation), and can undo that.
  std::vector<AddressRange> protected_;

  // `target` is consulted for memory of which a clone has no pages yet. Returns the pages that
  // contain something the program wrote.
  std::vector<AddressRange> add(const PageMap& own, const PageMap& target, const MapEntry& entry);

  bool may_touch(std::uint64_t address, std::uint64_t length) const;
};

}  // namespace reachscan::helper
