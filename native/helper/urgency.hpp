// While the target stands still, nothing may run in front of us.
#pragma once

#include <sched.h>

namespace reachscan::helper {

// Real-time priority for its lifetime, where the system allows it; harmless where it does not.
class Urgency {
 public:
  Urgency() : policy_(sched_getscheduler(0)) {
    sched_getparam(0, &parameters_);
    sched_param urgent{};
    urgent.sched_priority = 1;
    sched_setscheduler(0, SCHED_FIFO, &urgent);
  }
  ~Urgency() { sched_setscheduler(0, policy_, &parameters_); }
  Urgency(const Urgency&) = delete;
  Urgency& operator=(const Urgency&) = delete;

 private:
  int policy_;
  sched_param parameters_{};
};

}  // namespace reachscan::helper
