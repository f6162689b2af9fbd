#include "helper/snapshot.hpp"

#include "helper/kernel_held.hpp"
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
  UnforkedMemory unforked(pid);
  std::vector<std::uint64_t> kernel_words = kernel_held_words(pid);
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
      unforked.capture(memory);
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
  if (!snapshot.quiet) return snapshot;
  snapshot.clone = std::make_unique<Clone>(made.clone, site.address);
  unforked.restore(*snapshot.clone);
  snapshot.unforked_left_out = unforked.left_out();
  // Asked for on both sides of the pause: what was registered at that moment is in one of the
  // answers.
  std::vector<std::uint64_t>& words = snapshot.register_words;
  words.insert(words.end(), kernel_words.begin(), kernel_words.end());
  kernel_words = kernel_held_words(pid);
  words.insert(words.end(), kernel_words.begin(), kernel_words.end());
  return snapshot;
}

}  // namespace reachscan::helper
