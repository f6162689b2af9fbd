// Unpacks the images that the helper carries: what `gzip -n` made of them when it was built.
#pragma once

#include <vector>

namespace reachscan::helper {

// The header is of fixed length without a name (RFC 1952). The end of the data is in the data
// (RFC 1951). Both are the helper's own, so they are not checked.
std::vector<unsigned char> inflate(const unsigned char* packed);

}  // namespace reachscan::helper
