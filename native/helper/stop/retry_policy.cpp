// Classifies failures by their codes, and waits longer before each retry.
#include "helper/stop/retry_policy.hpp"

#include <algorithm>
#include <cstdio>
#include <thread>

namespace reachscan::helper {
namespace {

constexpr std::uint32_t kTries = 50;
// In each of these, the target is stopped until the pause is given up.
constexpr std::uint32_t kSleeps = 5;
constexpr auto kRetryInterval = std::chrono::milliseconds(5);
constexpr auto kLimit = std::chrono::seconds(30);
// Each try stops the target, so tries become rarer: each gap is this fraction of the time waited so
// far.
constexpr int kPart = 8;

}  // namespace

void RetryPolicy::wait_out(const Failure& failure) {
  if (failure.code == Code::kBeingScanned || failure.code == Code::kStartingUp)
    return wait_for_its_end(failure);
  if (failure.code == Code::kAsleep) {
    if (++sleeps_ < kSleeps) return;
    throw Failure(failure.step, Code::kUnstoppable, failure.what(), failure.error, failure.tid);
  }
  bool ran_out_of_time = failure.code == Code::kTimeout || failure.code == Code::kUnstoppable;
  if (awaited_ && ran_out_of_time) give_up_on(*awaited_);
  if (failure.code != Code::kRetry) throw failure;
  awaited_.reset();
  if (++tries_ == kTries) {
    bool of_clone = failure.step == wire::Step::kPlaceTrampoline;
    throw Failure(failure.step, of_clone ? Code::kCloneRefused : Code::kAllocatorBusy,
                  failure.what(), failure.error, failure.tid);
  }
  std::this_thread::sleep_for(kRetryInterval);
}

void RetryPolicy::wait_for_its_end(const Failure& failure) {
  Clock::time_point now = Clock::now();
  if (!awaited_) {
    first_seen_ = now;
    if (verbose_) std::fprintf(stderr, "%s: waiting for its end\n", failure.what());
  }
  awaited_ = failure;
  auto nap = std::max<Clock::duration>(kRetryInterval, (now - first_seen_) / kPart);
  // Leaves time for a try.
  if (now + 2 * nap >= deadline_ || now - first_seen_ >= kLimit) give_up_on(failure);
  std::this_thread::sleep_for(nap);
}

void RetryPolicy::give_up_on(const Failure& failure) {
  if (failure.code == Code::kStartingUp) throw failure;
  throw Failure(failure.step, Code::kAlreadyTraced,
                std::string(failure.what()) + ", which does not let go of it", failure.error,
                failure.tid);
}

}  // namespace reachscan::helper
