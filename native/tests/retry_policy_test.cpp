// Which failure the user learns of when waiting did not help.
#include "helper/stop/retry_policy.hpp"

#include <chrono>

#include "check.hpp"

using namespace reachscan::helper;
using reachscan::wire::Step;

namespace {

Failure failure(Code code) { return {Step::kWaitStop, code, "some sentence"}; }

Code thrown_for(RetryPolicy& policy, Code code) {
  try {
    policy.wait_out(failure(code));
  } catch (const Failure& thrown) {
    return thrown.code;
  }
  return Code::kRetry;  // it waited
}

RetryPolicy policy_for(std::chrono::seconds time) { return {false, Clock::now() + time}; }

}  // namespace

CASE(no_time_left_is_reported_as_such) {
  RetryPolicy policy = policy_for(std::chrono::seconds(600));
  CHECK(thrown_for(policy, Code::kUnstoppable) == Code::kUnstoppable);
  CHECK(thrown_for(policy, Code::kTimeout) == Code::kTimeout);
}

CASE(what_was_waited_for_is_reported_if_a_try_runs_out_of_time) {
  for (Code ran_out : {Code::kUnstoppable, Code::kTimeout}) {
    RetryPolicy policy = policy_for(std::chrono::seconds(600));
    CHECK(thrown_for(policy, Code::kStartingUp) == Code::kRetry);
    CHECK(thrown_for(policy, ran_out) == Code::kStartingUp);
  }
}

CASE(what_is_over_is_not_reported) {
  RetryPolicy policy = policy_for(std::chrono::seconds(600));
  CHECK(thrown_for(policy, Code::kStartingUp) == Code::kRetry);
  CHECK(thrown_for(policy, Code::kRetry) == Code::kRetry);
  CHECK(thrown_for(policy, Code::kUnstoppable) == Code::kUnstoppable);
}

CASE(nothing_is_waited_for_past_the_deadline) {
  RetryPolicy policy = policy_for(std::chrono::seconds(0));
  CHECK(thrown_for(policy, Code::kStartingUp) == Code::kStartingUp);
  CHECK(thrown_for(policy, Code::kBeingScanned) == Code::kAlreadyTraced);
}
