// Keeps processors awake and gives us real-time priority for the duration of a pause.
#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>

#include "helper/stop/scheduling.hpp"

namespace reachscan::helper {

// Keeps processors from sleeping while it exists, where the system allows that. Cloning a process
// takes a dozen switches between it and us, and each wake-up of a sleeping processor costs about
// 0.1 ms in virtual machines, or milliseconds. (PM QoS of Linux: holds while the file is open.)
class CpuLatencyRequest {
 public:
  CpuLatencyRequest() : device_(open("/dev/cpu_dma_latency", O_WRONLY | O_CLOEXEC)) {
    constexpr std::int32_t kLatency = 0;  // microseconds
    [[maybe_unused]] ssize_t written = write(device_, &kLatency, sizeof kLatency);
  }
  ~CpuLatencyRequest() {
    if (device_ >= 0) close(device_);
  }
  CpuLatencyRequest(const CpuLatencyRequest&) = delete;
  CpuLatencyRequest& operator=(const CpuLatencyRequest&) = delete;

 private:
  int device_;
};

// Real-time priority while it exists, where the system allows it; harmless elsewhere.
class RealtimePriority {
 public:
  RealtimePriority() : policy_(scheduling_policy(0)), priority_(scheduling_priority(0)) {
    schedule(0, SCHED_FIFO, 1);
  }
  ~RealtimePriority() { schedule(0, policy_, priority_); }
  RealtimePriority(const RealtimePriority&) = delete;
  RealtimePriority& operator=(const RealtimePriority&) = delete;

 private:
  CpuLatencyRequest latency_request_;
  int policy_;
  int priority_;
};

// The same for another task until it exits, but not for its children. A task with a real-time
// policy of its own is left alone.
inline void raise_priority(pid_t tid) {
  int policy = scheduling_policy(tid);
  if (policy != SCHED_OTHER && policy != SCHED_BATCH && policy != SCHED_IDLE) return;
  schedule(tid, SCHED_FIFO | SCHED_RESET_ON_FORK, 1);
}

}  // namespace reachscan::helper
