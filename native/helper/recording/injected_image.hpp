// The recorder's image, and where its parts come to lie in a target (recorder/injection.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "recorder/injection.hpp"

namespace reachscan::helper {

class InjectedImage {
 public:
  InjectedImage();

  // Of the whole region.
  std::uint64_t region_bytes() const;

  // Offsets of its parts from its start; each ends where the next one begins.
  std::uint64_t control() const;
  std::uint64_t code() const;  // stubs, then the image
  std::uint64_t data() const;
  std::uint64_t end() const;

  // What to write at code() and from there to end(), for a region that starts there.
  std::vector<unsigned char> relocated(std::uint64_t region) const;
  std::uint64_t entry(std::uint64_t region) const { return region + image() + entry_; }

  // Before the image.
  static constexpr std::uint64_t kStubBytes = recorder::kStubPages * recorder::kStubPage;

 private:
  std::uint64_t image() const { return code() + kStubBytes; }

  std::vector<unsigned char> bytes_;  // as they lie in memory
  std::vector<std::uint64_t> moved_;  // where words are that are addresses
  std::uint64_t data_ = 0;            // where data begins in it
  std::uint64_t entry_ = 0;
};

}  // namespace reachscan::helper
