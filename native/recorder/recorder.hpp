// The recorder of this process: decides what is recorded, and records it.
#pragma once

#include "recorder/block_filter.hpp"
#include "recorder/clock.hpp"
#include "recorder/live_blocks.hpp"
#include "recorder/live_mappings.hpp"
#include "recorder/python/interpreter.hpp"
#include "recorder/settings.hpp"
#include "recorder/this_thread.hpp"
#include "recorder/thread_rows.hpp"
#include "recorder/unwind/unwinder.hpp"

namespace reachscan::recorder {

class Recorder {
 public:
  // Creates the tables and starts to record. Returns false if there is no memory for them. The
  // settings must outlive this.
  bool start(const Settings& settings, const LinkMap& link_map, std::uint64_t main_stack_top,
             std::uint64_t kernel_library);

  // Calls visit(address, bytes) for each mapping made by start().
  template <typename Visit>
  void each_mapping(Visit visit) const {
    for (const MappedRange& mapping : mapped_)
      if (mapping.bytes != 0) visit(mapping.start, mapping.bytes);
  }

  // Sets the process that the records belong to, if it is not the one that called start().
  void belong_to(std::uint32_t pid) { tables_.header().pid = pid; }

  // Returns whether blocks of this size may have to be recorded: the only cost for other sizes.
  bool may_want(std::uint64_t size) const { return size - first_size_ <= size_span_; }

  // Returns whether the block that the thread is allocating is to be recorded. Must be called once
  // per block of such a size.
  bool is_chosen(ThreadState& thread, std::uint64_t size) {
    if (!is_one_range_ && !is_in_ranges(size)) return false;
    return sample_distance_ == 0 || is_sample(thread, size);
  }

  // Returns whether the block comes before the next sample of all sizes: most do. If it does not,
  // is_chosen() must be asked.
  static bool comes_before_sample(ThreadState& thread, std::uint64_t size) {
    return take_from(thread.until_sample, size);
  }

  // Records a chosen block that the allocator has just returned. `frame` is the frame of the
  // allocator's caller.
  void allocated(ThreadState& thread, const void* block, std::uint64_t size,
                 const arch::Frame& frame);

  // Returns false if the block is certainly not recorded: most are not if only some are chosen.
  bool may_know(const void* block) const {
    return filter_.may_contain(reinterpret_cast<std::uint64_t>(block));
  }

  // Called before a block is freed that may_know() knows. Returns whether it was recorded, and its
  // record in `was`.
  [[gnu::always_inline]] bool forget(const void* block, Allocation& was) {
    auto address = reinterpret_cast<std::uint64_t>(block);
    if (block == nullptr || !blocks_.remove(address, was)) return false;
    filter_.remove(address);
    if (tables_.header().options.stop_at != 0) add_live_bytes(-was.size);
    return true;
  }

  // Undoes that: the block was not freed.
  void remember(const Allocation& was) {
    if (!insert(was)) return lose();
    if (tables_.header().options.stop_at != 0) add_live_bytes(was.size);
  }

  bool records_mappings() const { return with_mappings_; }
  LiveMappings& mappings() { return mappings_; }

  // Notes who is requesting a mapping. Returns false if it is not to be recorded.
  bool note_mapping(const arch::Frame& frame, Allocation& noted);

  // Counts a mapping, or a change to one, that did not fit.
  void lose();

  void library_closed();
  void thread_renamed() { __atomic_fetch_add(&names_, 1, __ATOMIC_RELAXED); }
  void forked();
  void confined();

  bool is_recording() const { return is_recording_; }

 private:
  static bool take_from(std::uint64_t& until, std::uint64_t size) {
    if (until <= size) return false;
    until -= size;
    return true;
  }

  bool is_sample(ThreadState& thread, std::uint64_t size) const;
  bool insert(const Allocation& allocation) {
    filter_.add(allocation.address);
    if (blocks_.insert(allocation)) return true;
    filter_.remove(allocation.address);
    return false;
  }

  bool passes_filters(ThreadState& thread, const arch::Frame& frame);
  std::uint32_t stack_of(ThreadState& thread, const arch::Frame& frame);
  std::uint32_t instrumented_stack(arch::Frame frame);
  std::uint32_t stack_with_python(std::uint64_t running, const MemoFrame* frames,
                                  std::uint32_t count);
  std::uint32_t node_of(std::uint32_t parent, std::uint64_t pc) {
    std::uint32_t node = unwinder_.stacks().intern(
        parent, pc, [this](std::uint64_t code) { return unwinder_.module_of(code); });
    // Code of a module without a row would be named after what is at its place later.
    return unwinder_.modules().is_full() ? 0 : node;
  }
  std::uint32_t row_of(ThreadState& thread);
  bool is_in_ranges(std::uint64_t size) const;
  bool is_of_allocator(std::uint64_t pc);
  void add_live_bytes(std::uint64_t bytes);
  void stop(Stopped reason);
  void set_wanted_sizes(const Options& options);
  bool map_all(const Settings& settings);
  std::uint64_t milliseconds() const;

  // What the hot paths read. No size is ~0, which means "none".
  std::uint64_t first_size_ = ~std::uint64_t{0};
  std::uint64_t size_span_ = 0;
  bool is_recording_ = false;
  bool misses_frees_ = false;  // functions that are not hooked may free blocks unseen
  bool with_mappings_ = false;
  bool is_one_range_ = true;  // --sizes and --min-size amount to one range
  bool wants_all_sizes_ = false;
  std::uint64_t sample_distance_ = 0;

  BlockFilter filter_;

  // Tables, rules, the recorder's private data of modules, the filter.
  MappedRange mapped_[4] = {};
  Tables tables_{nullptr};
  LiveBlocks blocks_;
  LiveMappings mappings_;
  ThreadRows threads_;
  Unwinder unwinder_;
  Interpreter python_;
  Clock clock_;
  const Settings* settings_ = nullptr;
  std::uint64_t allocator_ = 0;  // some address in its code
  std::uint32_t names_ = 1;      // changes when a thread may have got another name or id
};

extern Recorder recorder;

}  // namespace reachscan::recorder
