// Drains the allocator: runs one thread at a time for some microseconds until none is inside.
#include "helper/stop/quiesce.hpp"

#include <algorithm>
#include <string>

#include "arch/system_calls.hpp"
#include "helper/stop/retry_policy.hpp"

namespace reachscan::helper {
namespace {

using wire::Step;

constexpr auto kMaxTime = std::chrono::milliseconds(200);
constexpr auto kMaxOptionalTime = std::chrono::milliseconds(50);
// Long enough to leave the allocator many times over: where the thread is then is a matter of
// chance.
constexpr auto kRun = std::chrono::microseconds(20);
// How far up the stack a return address into the allocator is searched for.
constexpr std::size_t kStackWords = 64;

struct ReadMemory {
  const Memory& memory;
  bool operator()(std::uint64_t address, void* buffer, std::size_t length) const {
    return memory.try_read(address, buffer, length);
  }
};

abi::Frame frame_of(const arch::Registers& r) {
  return {arch::program_counter(r), arch::stack_pointer(r), arch::link_register(r)};
}

// kWord: bytes of a word of the program.
template <unsigned kWord>
class Drain {
 public:
  Drain(Freeze& freeze, const Memory& memory, const abi::QuiesceHint& hint)
      : freeze_(freeze),
        memory_(memory),
        hint_(hint),
        deadline_(std::min(Clock::now() + (hint.optional != 0 ? kMaxOptionalTime : kMaxTime),
                           freeze.deadline())) {}

  DrainResult run() {
    // Round-robin: a thread may be waiting for a lock that another one holds.
    while (StoppedThread* thread = next_to_run()) {
      if (Clock::now() >= deadline_) return {hint_.optional != 0, runs_};
      ++runs_;
      if (!freeze_.run_briefly(*thread, kRun, freeze_.deadline()))
        throw Failure(Step::kDrain, Code::kRetry, "a thread ended while it was let run", 0,
                      thread->tid);
    }
    freeze_.stop_new_threads(freeze_.deadline());
    bool quiet = hint_.optional != 0 || !any_locked();
    if (!quiet || hint_.interrupted != 0) require_no_waiting_handler();
    return {quiet, runs_};
  }

 private:
  // Returns the next thread, round-robin, that is inside the allocator. If none is, but an arena is
  // locked, as all are during a fork(), or a thread waits for a lock, returns any thread that is
  // awake. Returns null if there is none of these either.
  StoppedThread* next_to_run() {
    bool locked = any_locked();
    auto inside = [&](const StoppedThread& thread) { return is_inside(thread, locked); };
    auto may_continue = [&](const StoppedThread& thread) {
      return !arch::will_restart(thread.registers) || waits_inside(thread);
    };
    StoppedThread* thread = next_in_round(inside);
    if (thread != nullptr || (!locked && !any_waits_inside())) return thread;
    return next_in_round(may_continue);
  }

  // Takes no turn: otherwise, the round would always resume after the waiting thread and never
  // reach it.
  bool any_waits_inside() const {
    const std::vector<StoppedThread>& threads = freeze_.threads();
    return std::any_of(threads.begin(), threads.end(),
                       [this](const StoppedThread& thread) { return waits_inside(thread); });
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

  // Such a thread leaves the allocator once its handler gets what it waits for.
  void require_no_waiting_handler() {
    for (const StoppedThread& thread : freeze_.threads())
      if (arch::will_restart(thread.registers) && is_interrupted_inside(thread))
        throw Failure(Step::kDrain, Code::kRetry,
                      "a signal handler has interrupted the allocator in thread " +
                          std::to_string(thread.tid) + ", and waits",
                      EBUSY, thread.tid);
  }

  bool any_locked() const {
    for (std::uint32_t i = 0; i < hint_.mutex_count; ++i) {
      std::uint32_t value = 0;
      memory_.read(Step::kDrain, hint_.mutexes[i], &value, sizeof value);
      if (value != 0) return true;
    }
    return false;
  }

  // In the allocator's code or in something that it called. A sleeping thread has no operation half
  // done, unless it waits for a lock of an allocator (waits_inside).
  bool is_inside(const StoppedThread& thread, bool locked) const {
    const arch::Registers& registers = thread.registers;
    abi::Frame frame = frame_of(registers);
    arch::leave_system_call<kWord>(frame.pc, frame.sp, ReadMemory{memory_});
    if (hint_.text.contains(frame.pc)) return true;
    if (arch::will_restart(registers)) return false;
    bool called = hint_.callees.contains(frame.pc) &&
                  (is_called_by_allocator(frame) || is_called_by_unsettled(frame));
    if (called || (hint_.interrupted != 0 && is_interrupted_inside(thread))) return true;
    return locked && returns_to_allocator(frame.sp);
  }

  // Waiting for a lock of an allocator, which may be free by now.
  bool waits_inside(const StoppedThread& thread) const {
    const arch::Registers& registers = thread.registers;
    if (!arch::will_restart(registers) || !arch::waits_for_lock(registers)) return false;
    abi::Frame frame = frame_of(registers);
    return is_called_by_allocator(frame) || is_called_by_unsettled(frame);
  }

  bool is_called_by_allocator(abi::Frame frame) const {
    return abi::is_called_by<abi::TailCalls::kNo, kWord>(hint_.text, frame, ReadMemory{memory_});
  }

  bool is_called_by_unsettled(abi::Frame frame) const {
    return hint_.unsettled.count != 0 && abi::is_called_by<abi::TailCalls::kYes, kWord>(
                                             hint_.unsettled, frame, ReadMemory{memory_});
  }

  bool is_interrupted_inside(const StoppedThread& thread) const {
    return abi::is_interrupted_inside<kWord>(hint_.text, arch::stack_pointer(thread.registers),
                                             ReadMemory{memory_});
  }

  bool returns_to_allocator(std::uint64_t sp) const {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < kStackWords && memory_.try_read(sp + kWord * i, &word, kWord); ++i)
      if (hint_.text.contains(word)) return true;
    return false;
  }

  Freeze& freeze_;
  const Memory& memory_;
  const abi::QuiesceHint& hint_;
  Clock::time_point deadline_;
  std::size_t turn_ = 0;
  std::uint32_t runs_ = 0;
};

}  // namespace

DrainResult drain(Freeze& freeze, const Memory& memory, const abi::QuiesceHint& hint,
                  bool short_words) {
  return short_words ? Drain<4>(freeze, memory, hint).run() : Drain<8>(freeze, memory, hint).run();
}

}  // namespace reachscan::helper
