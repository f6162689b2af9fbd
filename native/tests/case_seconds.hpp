// How long a case, or one input of a fuzzer, may take before it counts as hung.
#pragma once

#include <cstdlib>

namespace reachscan::tests {

inline constexpr char kCaseSeconds[] = "REACHSCAN_CASE_SECONDS";

inline unsigned case_seconds() {
  const char* text = std::getenv(kCaseSeconds);
  unsigned long asked = text == nullptr ? 0 : std::strtoul(text, nullptr, 10);
  // Far more than a case needs, on a machine however busy: it is there to end what hangs.
  return asked == 0 ? 1200 : static_cast<unsigned>(asked);
}

}  // namespace reachscan::tests
