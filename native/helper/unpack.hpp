// Unpacks the images that the helper carries, which were packed as one when it was built.
#pragma once

#include <cstddef>
#include <vector>

namespace reachscan::helper {

// The first `length` bytes of what a Zstandard frame contains (RFC 8878). It is the helper's own,
// so it is not checked. Eight bytes after it must be readable.
std::vector<unsigned char> unpack(const unsigned char* packed, std::size_t length);

}  // namespace reachscan::helper
