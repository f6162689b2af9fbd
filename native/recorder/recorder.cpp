// Decides which blocks are recorded, and records them.
#include "recorder/recorder.hpp"

#include "recorder/create_tables.hpp"
#include "recorder/process.hpp"
#include "recorder/sampling.hpp"

namespace reachscan::recorder {

constinit Recorder recorder;

namespace {

bool is_selective(const Options& options) {
  return options.min_size != 0 || options.range_count != 0 || options.sample != 0 ||
         options.modules_filtered != 0 || options.threads_filtered != 0;
}

}  // namespace

bool Recorder::map_all(const Settings& settings) {
  Header* header = create_tables(settings, clock_);
  if (header == nullptr) return false;
  tables_ = Tables(header);
  mapped_[0] = extent_of_tables(*header);
  const std::uint64_t bytes[] = {
      RuleCache::kBytes, header->modules.count * sizeof(Modules::Private), BlockFilter::kBytes};
  for (std::size_t i = 0; i < 3; ++i) {
    void* memory = map_memory(bytes[i]);
    if (memory == nullptr) return false;
    mapped_[i + 1] = {reinterpret_cast<std::uint64_t>(memory), bytes[i]};
  }
  return true;
}

bool Recorder::start(const Settings& settings, const LinkMap& link_map,
                     std::uint64_t main_stack_top, std::uint64_t kernel_library) {
  if (!link_map.is_known()) return false;
  clock_ = Clock(kernel_library);
  if (!map_all(settings)) {
    each_mapping([](std::uint64_t address, std::uint64_t bytes) {
      unmap_memory(reinterpret_cast<void*>(address), bytes);
    });
    return false;
  }
  blocks_ = LiveBlocks(tables_);
  filter_.place(reinterpret_cast<void*>(mapped_[3].start), is_selective(settings.options));
  mappings_ = LiveMappings(tables_);
  threads_ = ThreadRows(tables_);
  settings_ = &settings;
  Modules modules(tables_, link_map, reinterpret_cast<Modules::Private*>(mapped_[2].start),
                  settings.modules);
  unwinder_ =
      Unwinder(modules, RuleCache(reinterpret_cast<void*>(mapped_[1].start)), StackTrie(tables_),
               main_stack_top, settings.options.stacks == Stacks::kFramePointers);
  unwinder_.update_modules();
  python_ = Interpreter(link_map, tables_);
  misses_frees_ = settings.options.way_in == WayIn::kAttach;
  allocator_ = next_function("malloc");
  with_mappings_ = settings.options.with_mappings != 0;
  is_recording_ = true;
  set_wanted_sizes(settings.options);
  return true;
}

// Several ranges are tested one by one, after the test for all of them. No allocator has larger
// blocks, so those do not count.
void Recorder::set_wanted_sizes(const Options& options) {
  constexpr std::uint64_t kLargestRequest = std::uint64_t{1} << 62;
  std::uint64_t first = options.range_count == 0 ? 0 : ~std::uint64_t{0};
  std::uint64_t last = options.range_count == 0 ? kLargestRequest : 0;
  for (std::uint32_t i = 0; i < options.range_count; ++i) {
    if (options.ranges[i].first < first) first = options.ranges[i].first;
    if (options.ranges[i].last > last) last = options.ranges[i].last;
  }
  if (options.min_size > first) first = options.min_size;
  if (last > kLargestRequest) last = kLargestRequest;
  is_one_range_ = options.range_count <= 1;
  sample_distance_ = options.sample;
  if (first > last) return;
  first_size_ = first;
  size_span_ = last - first;
  wants_all_sizes_ = options.range_count == 0 && first == 0;
}

bool Recorder::is_in_ranges(std::uint64_t size) const {
  const Options& options = tables_.header().options;
  for (std::uint32_t i = 0; i < options.range_count; ++i)
    if (size >= options.ranges[i].first && size <= options.ranges[i].last) return true;
  return options.range_count == 0;
}

// For its first allocation, a thread behaves as if a sample had just been taken.
bool Recorder::is_sample(ThreadState& thread, std::uint64_t size) const {
  std::uint64_t& until = wants_all_sizes_ ? thread.until_sample : thread.until_wanted_sample;
  if (take_from(until, size)) return false;
  if (thread.random == 0) {
    CallingOut calling_out;
    thread.random = clock_.nanoseconds(CLOCK_MONOTONIC) ^ reinterpret_cast<std::uint64_t>(&thread);
    until = next_sample(thread.random, sample_distance_);
    if (take_from(until, size)) return false;
  }
  until = next_sample(thread.random, sample_distance_);
  return true;
}

void Recorder::allocated(ThreadState& thread, const void* block, std::uint64_t size,
                         const arch::Frame& frame) {
  if (!passes_filters(thread, frame)) return;
  Allocation allocation{reinterpret_cast<std::uint64_t>(block), size, milliseconds(),
                        stack_of(thread, frame), row_of(thread)};
  Allocation freed_unseen;
  if (misses_frees_ && may_know(block)) forget(block, freed_unseen);
  if (allocation.node == 0 || !insert(allocation)) return lose();
  threads_.count_record(allocation.thread);
  if (tables_.header().options.stop_at != 0) add_live_bytes(size);
}

// What an allocator maps for its blocks does not count as a mapping of the program.
bool Recorder::note_mapping(const arch::Frame& frame, Allocation& noted) {
  ThreadState& thread = this_thread();
  if (thread.is_inside != 0 || tables_.header().stopped != 0) return false;
  thread.is_inside = 1;
  bool is_wanted = !is_of_allocator(frame.pc) && passes_filters(thread, frame);
  if (is_wanted) noted = {0, 0, milliseconds(), stack_of(thread, frame), row_of(thread)};
  thread.is_inside = 0;
  if (is_wanted && noted.node == 0) lose();
  return is_wanted && noted.node != 0;
}

// A program that contains its own allocator cannot be distinguished from it.
bool Recorder::is_of_allocator(std::uint64_t pc) {
  std::uint32_t module = unwinder_.module_of(pc);
  return module != 0 && unwinder_.modules().row(module).path[0] != 0 &&
         module == unwinder_.module_of(allocator_ + 1);
}

bool Recorder::passes_filters(ThreadState& thread, const arch::Frame& frame) {
  const Options& options = tables_.header().options;
  if ((options.modules_filtered | options.threads_filtered) == 0) return true;
  if (options.threads_filtered != 0) {
    row_of(thread);
    if (!thread.is_wanted) return false;
  }
  return options.modules_filtered == 0 || unwinder_.is_from_wanted_module(frame);
}

// Functions that are not instrumented may have been called last, and are unwound. Returns 0 if the
// recorded calls do not lead here, as when the program has switched stacks itself.
std::uint32_t Recorder::instrumented_stack(arch::Frame frame) {
  instrumented::CallSites calls = instrumented_calls(frame.sp);
  if (calls.count == 0) return 0;
  std::uint32_t depth = tables_.header().options.depth, walked = 0;
  auto* pcs = static_cast<std::uint64_t*>(__builtin_alloca(depth * sizeof(std::uint64_t)));
  auto innermost = reinterpret_cast<std::uint64_t>(calls.sites[0]);
  while (frame.pc != innermost || frame.sp <= calls.sps[0]) {
    if (walked == depth || frame.sp > calls.sps[0]) return 0;
    pcs[walked++] = frame.pc;
    if (!unwinder_.to_caller(frame)) return 0;
  }
  std::uint32_t node = 0;
  std::uint32_t rest = calls.count < depth - walked ? calls.count : depth - walked;
  for (std::uint32_t i = rest; i-- > 0;) {
    node = node_of(node, reinterpret_cast<std::uint64_t>(calls.sites[i]));
    if (node == 0) return 0;
  }
  while (walked-- > 0 && (rest == 0 || node != 0)) node = node_of(node, pcs[walked]);
  return node;
}

std::uint32_t Recorder::stack_of(ThreadState& thread, const arch::Frame& frame) {
  if (tables_.header().options.stacks == Stacks::kInstrumented) {
    std::uint32_t node = instrumented_stack(frame);
    if (node != 0) return node;
  }
  StackMemo& memo = thread.memo;
  std::uint32_t closings = unwinder_.modules().closings();
  if (thread.closings != closings) memo.end(false);
  thread.closings = closings;
  // Python calls may have changed while the machine stack has not.
  std::uint64_t running = python_.running_thread(frame.pc);
  if (running != 0) memo.end(false);
  std::uint32_t depth = tables_.header().options.depth;
  auto* frames = static_cast<MemoFrame*>(__builtin_alloca(depth * sizeof(MemoFrame)));
  auto [count, outer, is_whole] = unwinder_.capture(frame, memo, frames, depth);
  if (running != 0) return stack_with_python(running, frames, count);
  std::uint32_t node = memo.node(outer);
  memo.begin(outer);
  for (std::uint32_t i = count; i-- > 0;) {
    node = node_of(node, frames[i].frame.pc);
    if (node == 0) break;
    frames[i].node = node;
    memo.push(frames[i]);
  }
  memo.end(is_whole && node != 0);
  return node;
}

// Python frames are placed after what their evaluating function has called. If a stack is
// truncated, it is unknown whether those of the last function belong to it.
std::uint32_t Recorder::stack_with_python(std::uint64_t running, const MemoFrame* frames,
                                          std::uint32_t count) {
  PythonFrame python[kMaxPythonFrames];
  std::uint32_t left = python_.frames(running, python, kMaxPythonFrames);
  if (python_.has_no_hosts()) left = python_.find_hosts(python, left, frames, count);
  std::uint32_t node = 0;
  for (std::uint32_t i = count; i-- > 0;) {
    node = node_of(node, frames[i].frame.pc);
    std::uint64_t start = frames[i].frame.sp;
    std::uint64_t end = i + 1 < count ? frames[i + 1].frame.sp : start;
    while (left > 0 && python[left - 1].host >= end) --left;
    for (; left > 0 && python[left - 1].host >= start && node != 0; --left)
      node = node_of(node, python[left - 1].pc);
    if (node == 0) break;
  }
  return node;
}

std::uint32_t Recorder::row_of(ThreadState& thread) {
  std::uint32_t names = __atomic_load_n(&names_, __ATOMIC_RELAXED);
  std::uint32_t number = own_thread_id();
  if (is_confined()) {
    // A thread that comes from now on has no name.
    if (thread.row == 0) thread.is_wanted = !settings_->threads.is_given();
  } else if (thread.names != names || thread.number != number) {
    char name[sizeof ThreadRow::name] = {};
    read_thread_name(name);
    thread.row = threads_.find(name);
    thread.is_wanted = !settings_->threads.is_given() || settings_->threads.matches(name);
    thread.names = names;
    thread.number = number;
  }
  return thread.row;
}

std::uint64_t Recorder::milliseconds() const {
  return (clock_.monotonic() - tables_.header().started_monotonic_ns) / 1'000'000;
}

void Recorder::add_live_bytes(std::uint64_t bytes) {
  Header& header = tables_.header();
  std::uint64_t live = __atomic_add_fetch(&header.live_bytes, bytes, __ATOMIC_RELAXED);
  if (static_cast<std::int64_t>(live) >= static_cast<std::int64_t>(header.options.stop_at))
    stop(Stopped::kStopAt);
}

void Recorder::lose() {
  __atomic_fetch_add(&tables_.header().lost, 1, __ATOMIC_RELAXED);
  stop(Stopped::kFull);
}

void Recorder::stop(Stopped reason) {
  CallingOut calling_out;
  Header& header = tables_.header();
  __atomic_store_n(&size_span_, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&first_size_, ~std::uint64_t{0}, __ATOMIC_RELAXED);
  std::uint32_t none = 0;
  if (__atomic_compare_exchange_n(&header.stopped, &none, static_cast<std::uint32_t>(reason), false,
                                  __ATOMIC_RELAXED, __ATOMIC_RELAXED))
    header.stopped_after_ms = milliseconds();
}

// What is unmapped from now on is not noticed.
void Recorder::confined() {
  if (!is_recording_) return;
  with_mappings_ = false;
  __atomic_store_n(&tables_.header().options.with_mappings, 0, __ATOMIC_RELAXED);
}

void Recorder::library_closed() {
  if (is_recording_) unwinder_.update_modules();
}

void Recorder::forked() {
  if (!is_recording_) return;
  tables_.header().pid = process_id();
  unwinder_.modules().end_update();
  thread_renamed();
}

}  // namespace reachscan::recorder
