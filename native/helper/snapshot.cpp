#include "helper/snapshot.hpp"

#include "helper/quiesce.hpp"
#include "helper/urgency.hpp"

namespace reachscan::helper {
namespace {

// Names the stretch of time between two calls.
class Stopwatch {
 public:
  Stopwatch(std::vector<PhaseTime>& phases, Clock::time_point start)
      : phases_(phases), last_(start) {}

  void lap(const char* name) {
    Clock::time_point now = Clock::now();
    phases_.push_back({name, now - last_});
    last_ = now;
  }

 private:
  std::vector<PhaseTime>& phases_;
  Clock::time_point last_;
};

}  // namespace

Snapshot take_snapshot(pid_t pid, const Memory& memory, const TrampolineSite& site,
                       const abi::QuiesceHint* hint, Clock::time_point deadline) {
  Snapshot snapshot;
  CloneResult made{};
  {
    Urgency urgency;
    Freeze freeze(pid, deadline);
    Stopwatch watch(snapshot.phases, freeze.began());
    watch.lap("freeze");
    if (hint != nullptr) {
      DrainResult drained = drain(freeze, memory, *hint);
      snapshot.quiet = drained.quiet;
      snapshot.drain_runs = drained.runs;
    }
    watch.lap("quiesce");
    if (snapshot.quiet) {
      snapshot.register_words = freeze.register_words();
      made = clone_target(freeze, memory, site, deadline);
      watch.lap("clone");
    }
    freeze.release(made.injected);
    watch.lap("release");
    snapshot.pause = freeze.pause();
    for (const StoppedThread& thread : freeze.threads())
      snapshot.threads.push_back(
          {thread.tid, {thread.registers.rip, thread.registers.rsp, thread.registers.fs_base}});
  }
  if (snapshot.quiet) snapshot.clone = std::make_unique<Clone>(made.clone, site.address);
  return snapshot;
}

}  // namespace reachscan::helper
