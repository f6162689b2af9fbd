// Maps the sweeper into the frozen clone, runs it and serves its requests. Only the clone's first
// thread makes requests; the others, which it requests, share the marking.
//
//   low    [control block, whole pages]  read-write   the only part that both sides write
//          [sweeper's code]              read-execute
//   other  [inputs: mappings, threads, register words]
//          [output buffer]               frames to be sent to the stream
//          [stack]
//   high   memory that the sweeper requests: bitmaps, mark stack
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "helper/capture/clone.hpp"
#include "helper/options.hpp"
#include "helper/stream.hpp"
#include "helper/sweep/sweep_check.hpp"
#include "helper/sweep/target_call.hpp"
#include "helper/target/process.hpp"
#include "wire/sweeper_abi.hpp"

namespace reachscan::helper {

struct SweeperInputs {
  const std::vector<MapEntry>& entries;  // the kernel's list, and its classification
  const std::vector<abi::Mapping>& mappings;
  const std::vector<abi::Thread>& threads;
  const std::vector<std::uint64_t>& words;
  std::size_t signal_stacks;  // at most this many exist
  const Options& options;
  abi::Task task;                             // the task of the options, or a step towards it
  bool last_chance;                           // see abi::Control
  const std::vector<abi::Suspect>* suspects;  // null: any block can be a leak
  bool torn;                                  // see abi::Control
  std::uint64_t written_ns;                   // see abi::Control
  bool may_call;                              // see abi::Control
  bool may_repeat;                            // see abi::Control
};

// The forms of the sweeper (memory/cluster.hpp).
enum class Form { kCommon, kFine, kShort };

struct SweepResult {
  bool needs_fine = false;  // refused because this form cannot represent the blocks of an allocator
  bool busy = false;        // refused because a thread was inside the allocator; hint says where
  bool in_motion = false;   // one was, and it was the only moment
  bool may_be_free = false;  // a warning says why
  std::string reason;        // for a refusal as busy
  abi::QuiesceHint hint{};
  abi::Totals totals{};
  std::vector<abi::Suspect> suspects;  // found by one pass
  std::uint64_t unreadable_pages = 0;
};

// Called at the start of each phase.
using OnPhase = std::function<void(wire::Phase phase, std::uint64_t done, std::uint64_t total)>;

class SweeperRun {
 public:
  SweeperRun(Clone& clone, const SweeperInputs& inputs, Form form);

  // Runs to the end and relays the sweeper's records. Throws Failure: kLayoutUnknown if the
  // allocator's structures fail validation, kTimeout, kInternal if the sweeper crashes,
  // kCloneTampered if another process tampers with it.
  SweepResult run(Stream& stream, const OnPhase& on_phase, Clock::time_point deadline);

 private:
  std::uint64_t map(std::uint64_t length, const char* what);
  std::uint64_t place(const void* bytes, std::uint64_t length, const char* what);
  void map_code();
  // What happens next to a thread that has stopped.
  enum class Next { kContinue, kNap, kFinished };
  Next handle_stop(Tracee& thread, WaitStatus status, Stream& stream, const OnPhase& on_phase,
                   SweepResult& result);
  Next serve(Stream& stream, const OnPhase& on_phase, SweepResult& result);
  void answer(std::uint64_t value) const;
  void start_thread(const abi::Control& control);
  Next call_target(std::uint64_t at);
  void require_time(Clock::time_point deadline) const;
  [[noreturn]] void fail_killed() const;
  // Sleeps until something happens; wakes napping threads.
  void rest();
  void relay_frames(std::uint64_t bytes, Stream& stream);
  void finish(const abi::Control& control, SweepResult& result) const;
  void take_suspects(const abi::Control& control, SweepResult& result);
  void refuse_scan(const abi::Control& control, SweepResult& result);
  void handle_fault(Tracee& thread, int signal, SweepResult& result);
  std::string place_of(std::uint64_t address) const;
  std::string read_text(std::uint64_t address) const;

  Clone& clone_;
  const SweeperInputs& inputs_;
  Form form_;
  SweepCheck check_;
  TargetCalls calls_;
  Clock::time_point deadline_{};
  std::uint64_t control_ = 0;
  std::uint64_t code_bytes_ = 0;
  std::uint64_t output_ = 0;
  struct Thread {
    Tracee* tracee;
    bool naps;
  };
  std::vector<Thread> threads_;  // the clone's first thread comes first
  bool flushed_ = false;         // some results have been sent: no other method may start over
};

}  // namespace reachscan::helper
