// The ways to capture memory for which the target is stopped.
#pragma once

namespace reachscan::helper {

enum class Method { kClone, kCopy, kTrack };

constexpr const char* name_of(Method method) {
  switch (method) {
    case Method::kClone:
      return "clone";
    case Method::kCopy:
      return "copy";
    case Method::kTrack:
      return "track";
  }
  return "unknown";
}

}  // namespace reachscan::helper
