// Takes one image out of those that were packed as one (helper/pack.py).
#include "helper/images.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "helper/unpack.hpp"

namespace {

constexpr unsigned kImages = 6;

using Bytes = std::vector<unsigned char>;

// Calls on x86 were packed with the place of a function instead of the distance to it.
void restore_distances(Bytes& image) {
  constexpr unsigned char kCall = 0xe8;
  constexpr std::ptrdiff_t kCallBytes = 5;
  constexpr std::int32_t kHalf = 1 << 24;  // of the modulus
  auto at = std::find(image.begin(), image.end(), kCall);
  while (image.end() - at >= kCallBytes) {
    std::int32_t place;
    std::memcpy(&place, &at[1], sizeof place);
    at += kCallBytes;
    if (place >= -kHalf && place < kHalf) {
      auto after = static_cast<std::int32_t>(at - image.begin());
      std::int32_t distance = ((place - after + kHalf) & (2 * kHalf - 1)) - kHalf;
      std::memcpy(&at[1 - kCallBytes], &distance, sizeof distance);
    }
    at = std::find(at, image.end(), kCall);
  }
}

}  // namespace

extern "C" const struct {
  std::uint32_t ends[kImages];  // of each of them, in what was packed
  unsigned char packed[];
} reachscan_images;

namespace reachscan::helper {

static_assert(static_cast<unsigned>(Image::kRecorder) == kImages - 1);

std::vector<unsigned char> unpacked(Image image) {
  auto index = static_cast<unsigned>(image);
  std::size_t start = index == 0 ? 0 : reachscan_images.ends[index - 1];
  Bytes bytes = unpack(reachscan_images.packed, reachscan_images.ends[index]);
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(start));
  restore_distances(bytes);
  return bytes;
}

}  // namespace reachscan::helper
