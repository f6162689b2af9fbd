// Takes one image out of those that were packed as one (helper/pack.py).
#include "helper/images.hpp"

#include <cstdint>

#include "helper/unpack.hpp"

namespace {

constexpr unsigned kImages = 6;

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
  auto bytes = unpack(reachscan_images.packed, reachscan_images.ends[index]);
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(start));
  return bytes;
}

}  // namespace reachscan::helper
