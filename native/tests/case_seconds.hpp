// How long a case, or one input of a fuzzer, may take before it counts as hung.
#pragma once

#include <cstdlib>

namespace reachscan::tests {

inline constexpr char kCaseSeconds[] = "REACHSCAN_CASE_SECONDS";

inline unsigned case_seconds() {
  const char* text = std::getenv(kCaseSeconds);
  unsigned long asked = text == nullptr ? 0 : std::strtoul(text, nullptr, 10);
  // Far more than a case needs: sanitizers on a busy machine take ten times as long as usual.
  return asked == 0 ? 120 : static_cast<unsigned>(asked);
}

}  // namespace reachscan::tests
