// Every way in which a scan can fail: the `code` of a failure record.
#pragma once

#include <cstdint>

namespace reachscan::wire {

// To add one, add a line here and map it to the class that gives advice about it in FAILURES of
// reachscan/errors.py.
#define REACHSCAN_FAILURES(X)                             \
  X(kNoSuchProcess, "no-such-process")                    \
  X(kAlreadyTraced, "already-traced")                     \
  X(kNotPermitted, "not-permitted")                       \
  X(kTargetExited, "target-exited")                       \
  X(kTargetExeced, "target-execed")                       \
  X(kUnsupportedArchitecture, "unsupported-architecture") \
  X(kUnsupportedPageSize, "unsupported-page-size")        \
  X(kAllocatorBusy, "allocator-busy")                     \
  X(kHeapInMotion, "heap-in-motion")                      \
  X(kStartingUp, "starting-up")                           \
  X(kLayoutUnknown, "layout-unknown")                     \
  X(kCloneRefused, "clone-refused")                       \
  X(kCloneTampered, "clone-tampered")                     \
  X(kUnstoppable, "unstoppable")                          \
  X(kPauseTooLong, "pause-too-long")                      \
  X(kNoMemory, "no-memory")                               \
  X(kTooLarge, "too-large")                               \
  X(kUnsupportedMethod, "unsupported-method")             \
  X(kBadCore, "bad-core")                                 \
  X(kUnrecordable, "unrecordable")                        \
  X(kTimeout, "timeout")                                  \
  X(kInternal, "internal")

enum class FailureCode : std::uint32_t {
#define REACHSCAN_MEMBER(member, name) member,
  REACHSCAN_FAILURES(REACHSCAN_MEMBER)
#undef REACHSCAN_MEMBER
  // Transient conditions, never sent: the helper waits until they pass and otherwise fails with one
  // of the above (stop/retry_policy.hpp).
  kRetry,         // a thread in an earlier scan's trampoline or exiting, or a signal to all threads
  kBeingScanned,  // another reachscan holds the target until its pause ends
  kAsleep,        // a thread waits for a disk or a kernel lock and cannot be stopped until then
};

constexpr const char* failure_name(FailureCode code) {
  switch (code) {
#define REACHSCAN_NAME(member, name) \
  case FailureCode::member:          \
    return name;
    REACHSCAN_FAILURES(REACHSCAN_NAME)
#undef REACHSCAN_NAME
    case FailureCode::kRetry:
    case FailureCode::kBeingScanned:
    case FailureCode::kAsleep:
      break;
  }
  return failure_name(FailureCode::kInternal);
}

}  // namespace reachscan::wire
