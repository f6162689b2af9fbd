#include "helper/quiesce.hpp"

#include <algorithm>
#include <array>

#include "helper/patience.hpp"

namespace reachscan::helper {
namespace {

using wire::Step;

constexpr auto kMaxTime = std::chrono::milliseconds(200);
// Long enough to leave the allocator many times over: where the thread is then is a matter of
// chance.
constexpr auto kRun = std::chrono::microseconds(20);
// How far up the stack a return address into the allocator is looked for.
constexpr std::size_t kStackWords = 64;

class Drain {
 public:
  Drain(Freeze& freeze, const Memory& memory, const abi::QuiesceHint& hint)
      : freeze_(freeze),
        memory_(memory),
        hint_(hint),
        deadline_(std::min(Clock::now() + kMaxTime, freeze.deadline())) {}

  DrainResult run() {
    // In turns: a thread may be waiting for a lock that another one holds.
    while (StoppedThread* thread = next_to_run()) {
      if (Clock::now() >= deadline_) return {false, runs_};
      ++runs_;
      if (!freeze_.run_briefly(*thread, kRun, freeze_.deadline()))
        throw Failure(Step::kDrain, kRetry, "a thread ended while it was let run", 0, thread->tid);
    }
    freeze_.stop_newborn(freeze_.deadline());
    return {!any_locked(), runs_};
  }

 private:
  // The next thread, in a round, that is inside the allocator. If none is and yet an arena is
  // locked, as all are during a fork(), any that is awake. Null if there is none of these either.
  StoppedThread* next_to_run() {
    bool locked = any_locked();
    auto inside = [&](const StoppedThread& thread) { return is_inside(thread, locked); };
    auto awake = [](const StoppedThread& thread) { return !arch::will_restart(thread.registers); };
    StoppedThread* thread = next_in_round(inside);
    return thread == nullptr && locked ? next_in_round(awake) : thread;
  }

  template <typename Wanted>
  StoppedThread* next_in_round(Wanted wanted) {
    std::vector<StoppedThread>& threads = freeze_.threads();
    for (std::size_t i = 0; i < threads.size(); ++i) {
      StoppedThread& thread = threads[turn_++ % threads.size()];
      if (wanted(thread)) return &thread;
    }
    return nullptr;
  }

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

  Freeze& freeze_;
  const Memory& memory_;
  const abi::QuiesceHint& hint_;
  Clock::time_point deadline_;
  std::size_t turn_ = 0;
  std::uint32_t runs_ = 0;
};

}  // namespace

DrainResult drain(Freeze& freeze, const Memory& memory, const abi::QuiesceHint& hint) {
  return Drain(freeze, memory, hint).run();
}

}  // namespace reachscan::helper
