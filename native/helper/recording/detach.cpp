// Removes a recorder: its hooks at once, its memory when no thread is in it.
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arch/imports.hpp"
#include "helper/capture/clone_preconditions.hpp"
#include "helper/recording/kept_pointers.hpp"
#include "helper/recording/presence.hpp"
#include "helper/recording/session.hpp"
#include "helper/recording/worker.hpp"
#include "helper/stop/preconditions.hpp"

namespace reachscan::helper {
namespace {

using recorder::Injection;
using recorder::MappedRange;
using recorder::Slot;
using recorder::SlotUse;
using wire::Step;

class Detachment {
 public:
  Detachment(const RecordingSession& session, std::uint64_t address, Removable removable)
      : session_(session), address_(address), removable_(removable) {}

  // Called before the first pause.
  void prepare() {
    injection_.reset();
    if (!is_there()) return;
    injection_ = read_injection(session_.memory, address_);
    read_slots();  // takes half the time when it is done again
    tables_ = find_lost_tables(session_.pid(), session_.memory, *injection_);
    may_have_kept_slots_ = has_kept_slots();
    if (!may_have_kept_slots_) return call_worker();
    look([&] {
      require_clonable(session_.pid());
      kept_pointers_.emplace(session_.pid(), session_.site);
    });
  }

  // Called before the last pause.
  void call_worker() {
    worker_ = Worker::start(session_);
    if (worker_) pause_ = std::max(pause_, worker_->pause());
  }

  // Called while the target is stopped. Throws Failure(kRetry) if a thread is in the recorder.
  void unhook(Freeze& freeze) {
    if (!take_over()) return;
    require_no_thread_at_jumps(freeze);
    find_filled_in(freeze);
    std::uint32_t hooked = 0;
    write(address_ + offsetof(Injection, hooked), &hooked, sizeof hooked);
    restore();
    if (leads_to_stubs()) redirect_stubs();
    require_idle_loader();
    require_no_thread_inside(freeze);
    if (!kept_pointers_) return remove_in_stop(freeze);
    look([&] { kept_pointers_->capture(freeze, session_.memory); });
  }

  // Called on the same thread when it runs again. Returns whether remove() must still be called.
  bool search_for_pointers() {
    if (!kept_pointers_) return false;
    if (!is_pointed_to_) is_pointed_to_ = kept_pointers_->exist(*injection_);
    kept_pointers_.reset();
    return true;
  }

  void remove(Freeze& freeze) {
    if (!take_over()) return;
    if (injection_->hooked != 0) fail_as_gone();
    require_no_thread_inside(freeze);
    remove_in_stop(freeze);
  }

  // Called when the target runs again, after the last pause: no thread can come back.
  void finish() {
    if (std::unique_ptr<Worker> worker = std::move(worker_)) unmap_all(worker->hands());
  }

  // Called if a pause failed.
  void dismiss_worker() { worker_.reset(); }

  std::uint64_t kept() const { return kept_; }

  // How long a thread of the target was stopped for a worker.
  std::chrono::nanoseconds pause() const { return pause_; }

 private:
  bool has_slots_of(SlotUse use) const {
    const Slot* slots = injection_->slots;
    return std::any_of(slots, slots + injection_->slot_count,
                       [use](const Slot& slot) { return slot.use == use; });
  }

  // Whether there may be copies of them.
  bool has_kept_slots() const {
    return has_slots_of(SlotUse::kPointer) || has_slots_of(SlotUse::kSymbol);
  }

  // Returns whether the loader may have filled in addresses that it took from such slots.
  bool may_have_filled_in() const {
    return injection_->begun == recorder::StartOutcome::kRecording &&
           has_slots_of(SlotUse::kSymbol);
  }

  [[noreturn]] void fail_as_gone() const {
    throw Failure(Step::kOpenTarget, Code::kUnrecordable,
                  name_of(session_.pid()) + " is no longer being recorded", 0, session_.pid());
  }

  bool is_there() const {
    std::uint64_t magic = 0;
    return session_.memory.try_read(address_, &magic, sizeof magic) &&
           magic == recorder::kInjectionMagic;
  }

  // Others that attach or detach do most of it while the target runs, and nothing is hooked then.
  // What was read before the pause may be out of date. Returns false if there is nothing to remove
  // any more.
  bool take_over() {
    bool is_gone = !injection_ || !read_again(session_.memory, address_, *injection_);
    bool is_hooked_now = !is_gone && injection_->hooked != 0;
    if (removable_ == Removable::kAbandoned && (is_gone || is_hooked_now)) {
      worker_.reset();
      kept_pointers_.reset();
      return false;
    }
    if (is_gone) fail_as_gone();
    if (has_kept_slots() != may_have_kept_slots_)
      throw Failure(Step::kDrain, Code::kRetry, "the process has been attached to meanwhile");
    if (is_hooked_now && tables_.empty()) return true;
    if (Worker::has_other(session_.pid(), worker_.get()))
      throw Failure(Step::kOpenTarget, Code::kBeingScanned,
                    name_of(session_.pid()) +
                        " is already being attached to or detached from by another reachscan",
                    EBUSY, session_.pid());
    tables_ = find_lost_tables(session_.pid(), session_.memory, *injection_);
    return true;
  }

  // Whether the program may have taken the address of a stub.
  bool leads_to_stubs() const { return has_slots_of(SlotUse::kCall) || has_kept_slots(); }

  void remove_in_stop(Freeze& freeze) {
    if (worker_) return;
    use_middleman(session_, freeze, [&](Middleman& middleman) { unmap_all(middleman); });
  }

  // Without a clone the search is impossible: then there may be pointers.
  template <typename Steps>
  void look(Steps steps) {
    try {
      steps();
    } catch (const Failure& failure) {
      if (failure.code != Code::kCloneRefused) throw;
      is_pointed_to_ = true;
    }
  }

  // Adds the words that the loader has filled in since the recorder started. The search for
  // pointers finds any that this misses.
  void find_filled_in(Freeze& freeze) {
    if (!may_have_filled_in()) return;
    use_middleman(session_, freeze, [&](Middleman& middleman) {
      middleman.run(injection_->add_filled_in, address_, injection_->code.start, session_.deadline);
    });
    injection_ = read_injection(session_.memory, address_);
  }

  // A thread that loads or unloads libraries is soon done.
  void require_idle_loader() const {
    if (may_have_filled_in() && injection_->is_settled == 0)
      throw Failure(Step::kDrain, Code::kRetry,
                    "nothing is recorded any more, but the process loads or closes a library, and "
                    "the memory of the recorder stays until that is done",
                    EBUSY, session_.pid());
  }

  void require_no_thread_inside(Freeze& freeze) {
    if (const StoppedThread* thread = search_.find_inside(freeze, session_.memory, *injection_))
      throw Failure(Step::kDrain, Code::kRetry,
                    "nothing is recorded any more, but thread " + std::to_string(thread->tid) +
                        " has yet to return from a function that it called through the recorder, "
                        "whose memory stays until then",
                    EBUSY, thread->tid);
  }

  // A thread in the middle of what replaces a start would resume in the middle of that start.
  void require_no_thread_at_jumps(Freeze& freeze) {
    abi::CodeRanges inside{};
    for (std::uint32_t i = 0; i < injection_->slot_count; ++i) {
      const Slot& slot = injection_->slots[i];
      if (slot.use == SlotUse::kEntry && hooked_bytes(slot) > arch::kJumpBytes)
        inside.add({slot.address + 1, slot.address + hooked_bytes(slot)});
    }
    if (const StoppedThread* thread = search_.find_in_code(freeze, session_.memory, inside))
      throw Failure(Step::kDrain, Code::kRetry,
                    "thread " + std::to_string(thread->tid) + " stands at a jump to the recorder",
                    EBUSY, thread->tid);
  }

  // A word that is no longer hooked has been taken over by other code, or bound again.
  void restore() {
    std::vector<std::uint64_t> words = read_slots();
    for (std::uint32_t frees : {0u, 1u})
      for (std::uint32_t i = 0; i < injection_->slot_count; ++i) {
        const Slot& slot = injection_->slots[i];
        std::uint64_t hooked = hooked_word(*injection_, slot);
        if (injection_->hooks[slot.hook].frees == frees &&
            std::memcmp(&words[i], &hooked, hooked_bytes(slot)) == 0)
          write(slot.address, &slot.original, hooked_bytes(slot));
      }
  }

  // Those of closed libraries may be gone: they are 0, which is no hook.
  std::vector<std::uint64_t> read_slots() const {
    std::vector<std::uint64_t> addresses, words;
    for (std::uint32_t i = 0; i < injection_->slot_count; ++i)
      addresses.push_back(injection_->slots[i].address);
    session_.memory.try_read_words(addresses, words);
    return words;
  }

  // The program may have kept the address of a stub.
  void redirect_stubs() {
    std::vector<unsigned char> stubs = stub_pages(*injection_, &recorder::Hook::next);
    write(injection_->code.start, stubs.data(), stubs.size());
  }

  void unmap_all(Middleman& middleman) {
    kept_ += unmap_extents(session_, middleman, address_, *injection_);
    for (const MappedRange& tables : tables_)
      unmap(middleman, tables.start, tables.start + tables.bytes);
    std::uint64_t start = injection_->region.start, end = start + injection_->region.bytes;
    if (!is_pointed_to_) return unmap(middleman, start, end);
    MappedRange stubs = pointer_stubs(*injection_);
    unmap(middleman, stubs.start + stubs.bytes, end);
    unmap(middleman, start, stubs.start);
    kept_ += stubs.bytes;
  }

  void unmap(Middleman& middleman, std::uint64_t start, std::uint64_t end) {
    if (middleman.call(SYS_munmap, {start, end - start}, session_.deadline) < 0)
      kept_ += end - start;
  }

  void write(std::uint64_t address, const void* bytes, std::size_t length) const {
    session_.memory.write(Step::kRelease, address, bytes, length);
  }

  const RecordingSession& session_;
  std::uint64_t address_;
  Removable removable_;
  std::unique_ptr<Worker> worker_;  // null if all is done while the target is stopped
  std::chrono::nanoseconds pause_{};
  std::unique_ptr<Injection> injection_;
  ThreadSearch search_;
  std::optional<StubPointers> kept_pointers_;
  std::vector<MappedRange> tables_;
  bool may_have_kept_slots_ = false;
  bool is_pointed_to_ = false;
  std::uint64_t kept_ = 0;
};

}  // namespace

Removal remove_recorder(const RecordingSession& session, std::uint64_t injection,
                        Removable removable) {
  Detachment detachment(session, injection, removable);
  bool is_there = false;
  auto finish = [&] { detachment.finish(); };
  auto give_up = [&] { detachment.dismiss_worker(); };
  auto pause = stop_target(
      session, {[&] { detachment.prepare(); }, [&](Freeze& freeze) { detachment.unhook(freeze); },
                [&] {
                  is_there = detachment.search_for_pointers();
                  finish();
                },
                give_up});
  auto remove = [&](Freeze& freeze) { detachment.remove(freeze); };
  if (is_there)
    pause = std::max(
        pause, stop_target(session, {[&] { detachment.call_worker(); }, remove, finish, give_up}));
  return {{pause, detachment.pause()}, detachment.kept()};
}

}  // namespace reachscan::helper
