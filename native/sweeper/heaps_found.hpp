// The heaps of the process, and the blocks of those that the sweeper understands. Memory of the
// others counts as in use, so that blocks which only it references are not reported; warnings name
// those heaps.
#pragma once

#include <new>

#include "heaps/detect.hpp"
#include "sweeper/blob/emit.hpp"
#include "sweeper/mark/parallel_run.hpp"
#include "sweeper/roots/annotations.hpp"

namespace reachscan::sweeper {

using heaps::Heap;
using heaps::Space;
using heaps::Verdict;

inline void send_warning(const heaps::Warning& warning) {
  Record(wire::kWarning).str(warning.code).str(warning.text).send();
  if (warning.doubts_all()) control()->may_be_free = 1;
}

// Builds a sentence from several parts and truncates it if it is too long.
class Sentence {
 public:
  Sentence& add(const char* text) {
    while (*text != 0 && length_ + 1 < sizeof text_) text_[length_++] = *text++;
    text_[length_] = 0;
    return *this;
  }
  // Appends text from the target's memory, up to the first character that cannot be in a file name.
  Sentence& add_name(const Space& space, uint64_t at) {
    for (; space.readable(at, 1) && length_ + 1 < sizeof text_; ++at) {
      char c = heaps::load<char>(at);
      if (c <= ' ' || c > '~') break;
      text_[length_++] = c;
    }
    text_[length_] = 0;
    return *this;
  }
  const char* text() const { return text_; }

 private:
  char text_[320] = {};
  std::size_t length_ = 0;
};

class HeapsFound {
 public:
  // Refuses if no heap is understood, or if a thread is inside an allocator. A malloc defined by
  // the library of `annotations` only forwards to another one.
  HeapsFound(const Space& space, const Annotations& annotations)
      : space_(space), annotations_(annotations), heap_(new_heap()) {
    if (heap_->needs_fine())
      refuse(abi::Refusal::kNeedsFine, "an allocator has blocks of a single word", 0);
    require_known_allocator(annotations.forwarding_file());
    if (!heap_->quiet(control()->hint)) {
      if (control()->last_chance == 0)
        refuse(abi::Refusal::kAllocatorBusy, "a thread is inside the allocator", 0);
      control()->in_motion = 1;
    }
    for (Verdict verdict = enumerate(); !verdict.fine(); verdict = enumerate())
      leave_out_failed(verdict);
    if (first_failure_.reason != nullptr && heap_->totals().blocks == 0) {
      // An allocator is not to be recognised before its own library is in place.
      require_loaded();
      refuse_first_failure();
    }
    blocks_->finish();
  }

  Heap& heap() { return *heap_; }
  const Heap& heap() const { return *heap_; }
  heaps::BlockMap& blocks() const { return *blocks_; }

  void send_warnings() const {
    if (unknown_ != 0) {
      heaps::DynamicSection section;
      heaps::read_dynamic_section(space_, unknown_, section);
      Sentence sentence;
      sentence.add("malloc of ");
      if (section.name == 0)
        sentence.add("the program");
      else
        sentence.add_name(space_, section.name);
      sentence.add(" is not understood");
      if (heap_->lists_blocks(unknown_))
        sentence.add(", and its malloc_iterate() can be called only in a clone");
      warn_of_unsearched(sentence);
    }
    for (std::size_t i = 0; i < left_out_count_; ++i) {
      if (heap_->is_listed(left_out_[i].heap)) continue;
      Sentence sentence;
      sentence.add("the heap of ").add(left_out_[i].name).add(" is not understood (");
      warn_of_unsearched(sentence.add(left_out_[i].reason).add(")"));
    }
    heap_->each_warning(send_warning);
  }

 private:
  struct LeftOut {
    const char* name;
    const char* reason;
    uint32_t heap;  // as a bit
  };

  Heap* new_heap() {
    const auto* threads = reinterpret_cast<const abi::Thread*>(control()->threads);
    return new (map_memory(sizeof(Heap)))
        Heap(space_, threads, control()->thread_count, map_memory, left_out_mask_,
             control()->python != 0, annotations_.header(),
             {control()->may_call != 0 ? call_target : nullptr, control()->may_repeat != 0});
  }

  void require_known_allocator(uint32_t forwarding) {
    if (!heap_->is_present()) require_loaded();
    unknown_ = heap_->unknown_allocator(forwarding);
    if (unknown_ != 0) first_failure_ = heaps::invalid(heap_->why_unknown(unknown_), unknown_);
    if (heap_->is_present()) return;
    if (unknown_ != 0) refuse_first_failure();
    for (const abi::Mapping& m : space_)
      if (Space::is_written_anonymous(m))
        refuse(abi::Refusal::kLayoutUnknown, "no known allocator was found in the process", 0);
  }

  // An allocator is not to be recognised before its first call has returned.
  [[noreturn]] void refuse_first_failure() const {
    if (unknown_ == 0 || !heap_->is_inside(unknown_, control()->hint))
      refuse_verdict(first_failure_);
    const char* why =
        "malloc is provided by a module that is not understood, or that a thread is still setting "
        "up";
    if (control()->may_repeat != 0) refuse(abi::Refusal::kAllocatorBusy, why, unknown_);
    refuse_verdict(heaps::invalid(why, unknown_));
  }

  void require_loaded() const {
    const auto* first = reinterpret_cast<const abi::Thread*>(control()->threads);
    bool is_alone = control()->thread_count == 1;
    if (heaps::is_being_loaded(space_) || (is_alone && !heaps::has_begun(space_, first->sp)))
      refuse(abi::Refusal::kStartingUp, "the program is still loading its libraries", 0);
  }

  // The map may already contain blocks of a heap that failed.
  Verdict enumerate() {
    blocks_ = new (map_memory(sizeof(heaps::BlockMap)))
        heaps::BlockMap(space_, map_memory, heap_->uses_modules());
    if (has_wide_words()) blocks_->find_blanks();
    Verdict verdict = heap_->enumerate(*blocks_, {threads_for, on_threads});
    if (verdict.fine()) return verdict;
    if (verdict.status != Verdict::kInvalid || control()->torn != 0 || heap_->failed_wanted())
      refuse_verdict(verdict);
    return verdict;
  }

  // At another moment, the heap that failed may be consistent. If its allocator lists its blocks
  // itself, there is no need to wait for that.
  void leave_out_failed(const Verdict& failure) {
    uint32_t failed = heap_->failed();
    left_out_mask_ |= failed;
    Heap* others = new_heap();
    bool in_motion = control()->in_motion != 0;
    if (!others->is_listed(failed) &&
        (in_motion || heap_->interrupted(control()->hint) || may_pass()))
      refuse(abi::Refusal::kAllocatorBusy, failure.reason, failure.address);
    if (first_failure_.reason == nullptr) first_failure_ = failure;
    left_out_[left_out_count_++] = {heap_->failed_name(), failure.reason, failed};
    heap_ = others;
  }

  // Whether a heap that contradicts itself may be consistent at another moment. Not all code of an
  // allocator is recognised in a stripped program, so a thread may be inside without showing it.
  bool may_pass() const {
    const auto* threads = reinterpret_cast<const abi::Thread*>(control()->threads);
    for (uint64_t t = 0; control()->may_repeat != 0 && t < control()->thread_count; ++t)
      if (threads[t].sleep != abi::Sleep::kOtherwise) return true;
    return false;
  }

  [[noreturn]] static void refuse_verdict(const Verdict& verdict) {
    bool memory = verdict.status == Verdict::kNoMemory;
    refuse(memory ? abi::Refusal::kNoMemory : abi::Refusal::kLayoutUnknown,
           memory ? "the clone could not get working memory" : verdict.reason, verdict.address);
  }

  static void warn_of_unsearched(Sentence& sentence) {
    sentence.add(": what it has allocated counts as in use, and leaks among it are not found");
    send_warning({"incomplete-heaps", sentence.text()});
  }

  const Space& space_;
  const Annotations& annotations_;
  uint32_t left_out_mask_ = 0;
  std::size_t left_out_count_ = 0;
  LeftOut left_out_[Heap::kWalkers] = {};
  Heap* heap_;
  heaps::BlockMap* blocks_ = nullptr;
  uint64_t unknown_ = 0;   // a module that defines malloc
  Verdict first_failure_;  // why the most widely used heap may be left out
};

}  // namespace reachscan::sweeper
