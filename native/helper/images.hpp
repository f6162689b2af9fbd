// What the helper carries in order to put it into other processes.
#pragma once

#include <vector>

namespace reachscan::helper {

// In the order in which they are packed: what comes first is unpacked faster.
enum class Image { kSweeper, kFineSweeper, kShortSweeper, kSweeper16, kSweeper64, kRecorder };

std::vector<unsigned char> unpacked(Image image);

}  // namespace reachscan::helper
