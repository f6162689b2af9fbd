#include "helper/quiesce.hpp"

#include <sys/ptrace.h>

#include <array>
#include <cerrno>
#include <csignal>

namespace reachscan::helper {
namespace {

using wire::Step;

constexpr std::uint32_t kMaxSteps = 200'000;
constexpr auto kMaxTime = std::chrono::milliseconds(200);
// One thread's turn; then the others get theirs, for it may be waiting for them.
constexpr std::uint32_t kTurn = 4096;
// A step that takes longer has gone to sleep in the kernel.
constexpr auto kStepLimit = std::chrono::milliseconds(2);
constexpr auto kStopLimit = std::chrono::seconds(2);
// How far up the stack a return address into the allocator is looked for.
constexpr std::size_t kStackWords = 64;

class Drain {
 public:
  Drain(Freeze& freeze, const Memory& memory, const abi::QuiesceHint& hint)
      : freeze_(freeze), memory_(memory), hint_(hint), deadline_(Clock::now() + kMaxTime) {}

  DrainResult run() {
    for (;;) {
      bool locked = any_locked(), moved = false, inside = false;
      for (StoppedThread& thread : freeze_.threads()) {
        if (!is_inside(thread, locked)) continue;
        inside = true;
        if (exhausted()) return {false, steps_};
        moved = take_turn(thread, locked) || moved;
      }
      if (!inside) return {!any_locked(), steps_};
      if (!moved) return {false, steps_};
    }
  }

 private:
  bool exhausted() const { return steps_ >= kMaxSteps || Clock::now() >= deadline_; }

  bool in_text(std::uint64_t address) const {
    return address >= hint_.text_start && address < hint_.text_end;
  }

  bool any_locked() const {
    for (std::uint32_t i = 0; i < hint_.mutex_count; ++i) {
      std::uint32_t value = 0;
      memory_.read(Step::kDrain, hint_.mutexes[i], &value, sizeof value);
      if (value != 0) return true;
    }
    return false;
  }

  // In the allocator's code; or, while an arena is locked, in something that the allocator called.
  bool is_inside(const StoppedThread& thread, bool locked) const {
    if (in_text(thread.registers.rip)) return true;
    // Who sleeps, waiting for a lock for instance, has nothing half done.
    if (!locked || arch::will_restart(thread.registers)) return false;
    std::array<std::uint64_t, kStackWords> stack{};
    if (!memory_.try_read(thread.registers.rsp, stack.data(), sizeof stack))
      read_short_stack(thread.registers.rsp, stack);
    for (std::uint64_t value : stack)
      if (in_text(value)) return true;
    return false;
  }

  void read_short_stack(std::uint64_t at, std::array<std::uint64_t, kStackWords>& stack) const {
    for (std::uint64_t& value : stack) {
      if (!memory_.try_read(at, &value, sizeof value)) return;
      at += sizeof value;
    }
  }

  // Steps one thread until it is out, its turn is over or it sleeps. False if it did not move.
  bool take_turn(StoppedThread& thread, bool locked) {
    bool moved = false;
    for (std::uint32_t i = 0; i < kTurn && !exhausted(); ++i) {
      if (thread.pending_signal != 0 || !step(thread)) return moved;
      moved = true;
      // Looking at the locks and the stack costs more than a step.
      bool check = !in_text(thread.registers.rip) && (i % 32 == 31 || !locked);
      if (check && !is_inside(thread, any_locked())) return true;
    }
    return moved;
  }

  bool step(StoppedThread& thread) {
    if (ptrace(PTRACE_SINGLESTEP, thread.tid, nullptr, nullptr) != 0)
      throw Failure(Step::kDrain, errno == ESRCH ? "target-exited" : "internal",
                    "cannot step a thread", errno, thread.tid);
    ++steps_;
    WaitStatus status{};
    auto limit = Clock::now() + kStepLimit;
    bool slept = false;
    while (!poll_for(thread.tid, Step::kDrain, status)) {
      if (Clock::now() < limit) continue;
      slept = true;
      ptrace(PTRACE_INTERRUPT, thread.tid, nullptr, nullptr);
      status = wait_for(thread.tid, Step::kDrain, Clock::now() + kStopLimit);
      break;
    }
    if (!status.stopped())
      throw Failure(Step::kDrain, "target-exited", "a thread ended while it was stepped", 0,
                    thread.tid);
    if (status.event() == 0 && status.signal() != SIGTRAP) thread.pending_signal = status.signal();
    if (!arch::get_registers(thread.tid, thread.registers))
      throw Failure(Step::kDrain, "target-exited", "cannot read registers", errno, thread.tid);
    if (thread.pending_signal == 0 && arch::repair_interrupted_call(thread.registers))
      arch::set_registers(thread.tid, thread.registers);
    return !slept;
  }

  Freeze& freeze_;
  const Memory& memory_;
  const abi::QuiesceHint& hint_;
  Clock::time_point deadline_;
  std::uint32_t steps_ = 0;
};

}  // namespace

DrainResult drain(Freeze& freeze, const Memory& memory, const abi::QuiesceHint& hint) {
  return Drain(freeze, memory, hint).run();
}

}  // namespace reachscan::helper
