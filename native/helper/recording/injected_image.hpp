// The recorder's image, and where its parts are placed in a target (recorder/injection.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "recorder/injection.hpp"

namespace reachscan::helper {

class InjectedImage {
 public:
  InjectedImage();

  // The size of the whole region.
  std::uint64_t region_bytes() const;

  // Offsets of its parts from its start; each part ends where the next one starts.
  std::uint64_t control() const;
  std::uint64_t code() const;  // stubs, then the image
  std::uint64_t data() const;
  std::uint64_t end() const;

  // Returns the bytes from code() to end(), for a region at this address.
  std::vector<unsigned char> relocated(std::uint64_t region) const;
  std::uint64_t entry(std::uint64_t region) const { return region + image() + entry_; }

  // They precede the image.
  static constexpr std::uint64_t kStubBytes = recorder::kStubPages * recorder::kStubPage;

 private:
  std::uint64_t image() const { return code() + kStubBytes; }

  std::vector<unsigned char> bytes_;  // as in memory
  std::vector<std::uint64_t> moved_;  // positions of words that are addresses
  std::uint64_t data_ = 0;            // where data starts in it
  std::uint64_t entry_ = 0;
};

}  // namespace reachscan::helper
