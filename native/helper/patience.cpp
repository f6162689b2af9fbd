#include "helper/patience.hpp"

#include <cstdio>
#include <thread>

namespace reachscan::helper {
namespace {

constexpr std::uint32_t kTries = 50;
constexpr auto kBetweenTries = std::chrono::milliseconds(5);
constexpr auto kOtherScanLimit = std::chrono::seconds(30);

}  // namespace

void Patience::wait_out(const Failure& failure) {
  if (is(failure, kBeingScanned)) {
    wait_out_other_scan(failure);
  } else if (!is(failure, kRetry)) {
    throw failure;
  } else if (++tries_ == kTries) {
    bool of_clone = failure.step == wire::Step::kPlaceTrampoline;
    throw Failure(failure.step, of_clone ? "clone-refused" : "allocator-busy", failure.what(),
                  failure.error, failure.tid);
  }
  std::this_thread::sleep_for(kBetweenTries);
}

void Patience::wait_out_other_scan(const Failure& failure) {
  Clock::time_point now = Clock::now();
  if (other_scan_seen_ == Clock::time_point{}) {
    other_scan_seen_ = now;
    if (verbose_) std::fprintf(stderr, "%s: waiting for its end\n", failure.what());
  }
  if (now < deadline_ && now - other_scan_seen_ < kOtherScanLimit) return;
  throw Failure(failure.step, "already-traced",
                std::string(failure.what()) + ", which does not let go of it", failure.error,
                failure.tid);
}

}  // namespace reachscan::helper
