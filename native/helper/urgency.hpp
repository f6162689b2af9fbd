// While the target stands still, nothing may run in front of us.
#pragma once

#include <sched.h>
#include <sys/types.h>

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

// The same for another task until it ends, but not for its children. One that is urgent by itself
// stays as it is.
inline void make_urgent(pid_t tid) {
  int policy = sched_getscheduler(tid);
  if (policy != SCHED_OTHER && policy != SCHED_BATCH && policy != SCHED_IDLE) return;
  sched_param urgent{};
  urgent.sched_priority = 1;
  sched_setscheduler(tid, SCHED_FIFO | SCHED_RESET_ON_FORK, &urgent);
}

}  // namespace reachscan::helper
