// The walker for allocators that list their own blocks and that no other walker understands.
// heaps/heap.hpp has the contract of a walker.
//
//   interface       the functions that do so, by name
//   blocks          whether what they list can be blocks, and which memory is the allocator's
//
// They are called in the clone, as bionic's libmemunreachable does in its own: malloc_disable()
// waits until no thread is inside. A thread that the clone does not have never leaves, so the call
// then waits for ever. The scan is repeated at a better moment.
#pragma once

#include "heaps/gwp_asan.hpp"
#include "heaps/instances.hpp"
#include "heaps/iterated/blocks.hpp"
#include "heaps/iterated/interface.hpp"

namespace reachscan::heaps::iterated {

class Walker : public Instances<Interface, kMaxModules> {
 public:
  // What the allocator's lists leave in freed blocks cannot be told from pointers.
  static constexpr uint64_t kLinkBytes = 0;
  static constexpr bool kNeedsFine = true;

  Walker(const Space& space, const libc::Threads& threads, MapMemory map, Caller caller)
      : Instances(space, threads,
                  [&](auto& found) { return caller.call != nullptr ? find(space, found) : 0; }),
        map_(map),
        caller_(caller) {}

  // Forgets modules for which is_known(file).
  template <typename IsKnown>
  void disown(IsKnown is_known) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count_; ++i)
      if (!is_known(instances_[i].file)) instances_[kept++] = instances_[i];
    count_ = kept;
  }

  static bool quiet(abi::QuiesceHint&) { return true; }
  static void describe(abi::QuiesceHint&) {}

  // Leads the threads out of the allocator's library, and waits for the lock. Neither is a must,
  // since the library may do more than allocate, and the lock may never be free.
  bool interrupted(abi::QuiesceHint& hint) const {
    if (!blocked_ || !caller_.may_repeat) return false;
    hint.optional = 1;
    if (lock_ != 0 && space_.readable(lock_, 4) && hint.mutex_count < hint.kMaxMutexes)
      hint.mutexes[hint.mutex_count++] = lock_;
    if (!instances_[current_].of_executable)
      describe_library(space_, instances_[current_].file, hint);
    return true;
  }

  Verdict enumerate(BlockMap& blocks, OnThreads on_threads, uint32_t first_arena) {
    gaps_ = List<Range>(map_, kMaxRuns);
    stack_end_ = reinterpret_cast<std::uintptr_t>(map_(kStackBytes)) + kStackBytes;
    Verdict verdict;
    for (current_ = 0; current_ < count_; ++current_) {
      List<Block>& listed = listed_[current_];
      listed = List<Block>(map_, most_blocks());
      verdict = list_blocks(instances_[current_], listed);
      uint32_t arena = first_arena + static_cast<uint32_t>(current_);
      if (verdict.fine())
        verdict =
            Blocks(space_, map_, listed, gaps_, arena, {blocks, totals, on_threads}).claim_all();
      if (!verdict.fine()) return verdict;
    }
    return verdict;
  }

  bool keeps_backtraces() const {
    for (std::size_t i = 0; i < count_; ++i)
      if (instances_[i].backtrace != 0) return true;
    return false;
  }

  // Asks where blocks were allocated. Calls note(context, index, frames, count) for those of which
  // that is known, in the course of a call in the clone: it must make no requests.
  Verdict backtraces(const List<uint64_t>& blocks, NoteBacktrace note, void* context) {
    Verdict verdict;
    for (std::size_t i = 0; i < count_ && verdict.fine(); ++i) {
      if (instances_[i].backtrace == 0) continue;
      Asking asking{instances_[i].backtrace, listed_[i], blocks, note, context};
      abi::Call asked =
          call(reinterpret_cast<std::uintptr_t>(&ask), kShortLimit + blocks.size() / kAskedInLimit,
               reinterpret_cast<std::uintptr_t>(&asking));
      if (asked.outcome != Outcome::kReturned) verdict = failed("malloc_backtrace()", asked);
    }
    return verdict;
  }

  // The name of the first such library, or of the one that failed.
  void write_name(char (&name)[kNameLength]) const {
    std::size_t length = 0;
    uint64_t from = instances_[current_ < count_ ? current_ : 0].name;
    for (; from != 0 && length + 1 < kNameLength; ++length) {
      uint64_t at = from + length;
      if (!space_.readable(at, 1) || load<char>(at) <= ' ' || load<char>(at) > '~') break;
      name[length] = load<char>(at);
    }
    name[length] = 0;
    if (length == 0) __builtin_memcpy(name, "malloc", 7);
  }

  // What GWP-ASan records names blocks.
  template <typename Visit>
  void each_variable(Visit visit) const {
    each_data([&](const Interface&, Range data) {
      gwp_asan::each_pool(space_, data, [&](gwp_asan::Pool pool) {
        if (pool.is_known(space_)) visit(pool.records());
      });
    });
  }

  // A stack that the kernel has put between blocks is the program's.
  template <typename Visit>
  void each_unclear(Visit visit) const {
    for (const Range& gap : gaps_)
      if (!has_thread(gap)) visit(gap);
    each_data([&](const Interface& from, Range data) {
      if (!from.of_executable) each_chunk_variable(data, visit);
    });
  }

 private:
  using Outcome = abi::Call::Outcome;
  static constexpr uint64_t kStackBytes = 1 << 20;
  static constexpr uint64_t kLeastBytes = 16;  // of a block, on average
  static constexpr uint64_t kShortLimit = 1000, kLongLimit = 5000;
  static constexpr uint64_t kBytesInLimit = 1 << 18;  // for each of these, a millisecond more
  static constexpr uint64_t kAskedInLimit = 100;      // the same
  static constexpr std::size_t kMostFrames = 64;

  struct Asking {
    uint64_t function;
    const List<Block>& listed;
    const List<uint64_t>& blocks;
    NoteBacktrace note;
    void* context;
  };

  static std::size_t find(const Space& space, Interface (&found)[kMaxModules]) {
    std::size_t count = 0;
    for (const abi::Mapping& m : space)
      if (count < kMaxModules && is_image(m) && read_interface(space, m, found[count])) ++count;
    return count;
  }

  static void note(uint64_t start, uint64_t bytes, void* listed) {
    static_cast<List<Block>*>(listed)->push({start, bytes});
  }

  static void ask(const Asking* asking) {
    using Backtrace =
        std::make_signed_t<uint64_t> (*)(uint64_t block, uint64_t * frames, uint64_t most);
    auto backtrace = reinterpret_cast<Backtrace>(asking->function);
    for (std::size_t i = 0; i < asking->blocks.size(); ++i) {
      if (!lists(asking->listed, asking->blocks[i])) continue;
      uint64_t frames[kMostFrames];
      auto count = backtrace(asking->blocks[i], frames, kMostFrames);
      if (count <= 0) continue;
      auto known = static_cast<std::size_t>(count);
      asking->note(asking->context, i, frames, known < kMostFrames ? known : kMostFrames);
    }
  }

  uint64_t written_bytes() const {
    uint64_t bytes = 0;
    for (const abi::Mapping& m : space_)
      if (Space::is_written_anonymous(m)) bytes += m.end - m.start;
    return bytes;
  }

  std::size_t most_blocks() const { return written_bytes() / kLeastBytes + 1; }

  Verdict list_blocks(const Interface& from, List<Block>& listed) {
    Range all{(*space_.begin()).start, space_.end()[-1].end};
    abi::Call disable = call(from.disable, kShortLimit);
    // Some locks are waited for without the kernel.
    blocked_ = disable.outcome == Outcome::kWaits || disable.outcome == Outcome::kTooSlow;
    lock_ = disable.outcome == Outcome::kWaits ? disable.value : 0;
    if (disable.outcome != Outcome::kReturned) return failed("malloc_disable()", disable);
    abi::Call iterate = call(from.iterate, kLongLimit + written_bytes() / kBytesInLimit, all.start,
                             all.end - all.start, reinterpret_cast<std::uintptr_t>(&note),
                             reinterpret_cast<std::uintptr_t>(&listed));
    if (iterate.outcome != Outcome::kReturned) return failed("malloc_iterate()", iterate);
    if (static_cast<uint32_t>(iterate.value) == ~0u)
      return invalid("its malloc_iterate() has failed", from.iterate);
    if (listed.size() == most_blocks())
      return invalid("its malloc_iterate() has listed more blocks than there is memory for",
                     from.iterate);
    abi::Call enable = call(from.enable, kShortLimit);
    if (enable.outcome != Outcome::kReturned) return failed("malloc_enable()", enable);
    return {};
  }

  template <typename... Arguments>
  abi::Call call(uint64_t function, uint64_t limit_ms, Arguments... arguments) const {
    abi::Call call{function, {arguments...}, stack_end_, limit_ms, Outcome::kForbidden, 0};
    caller_.call(call);
    return call;
  }

  Verdict failed(const char* function, const abi::Call& call) {
    length_ = 0;
    add("its ");
    add(function);
    if (call.outcome == Outcome::kForbidden) add(" cannot be kept from shared memory");
    if (call.outcome == Outcome::kCrashed) add(" crashes");
    if (call.outcome == Outcome::kTooSlow) add(" does not return in time");
    if (call.outcome == Outcome::kWaits) add(" waits for a lock");
    if (call.outcome == Outcome::kNeedsKernel) add(" makes a system call");
    return invalid(reason_, call.function);
  }

  void add(const char* text) {
    while (*text != 0 && length_ + 1 < sizeof reason_) reason_[length_++] = *text++;
    reason_[length_] = 0;
  }

  // Calls visit(interface, data) for the data of each of the modules.
  template <typename Visit>
  void each_data(Visit visit) const {
    each_module_data(space_, [&](uint32_t file, Range data) {
      for (std::size_t i = 0; i < count_; ++i)
        if (instances_[i].file == file) visit(instances_[i], data);
    });
  }

  // The library probably notes where it has memory from the kernel, which may begin with a block.
  template <typename Visit>
  void each_chunk_variable(Range data, Visit visit) const {
    for (uint64_t at = align_up(data.start, kWord); at + kWord <= data.end; at += kWord) {
      if (at % kPage == 0) at = space_.skip_absent(at);
      if (at + kWord > data.end) break;
      uint64_t value = word(at);
      if (value != 0 && value % kPage == 0 && starts_block(value)) visit(Range{at, at + kWord});
    }
  }

  bool starts_block(uint64_t address) const {
    for (std::size_t i = 0; i < count_; ++i)
      if (lists(listed_[i], address)) return true;
    return false;
  }

  static bool lists(const List<Block>& listed, uint64_t address) {
    std::size_t at = lower_bound(listed, {address, 0}, is_before);
    return at < listed.size() && listed[at].start == address;
  }

  bool has_thread(Range gap) const {
    for (std::size_t t = 0; t < threads_.running_count; ++t)
      if (gap.contains(threads_.running[t].sp) || gap.contains(threads_.running[t].thread_pointer))
        return true;
    for (const libc::ExitedThread& thread : threads_.ended)
      if (gap.contains(thread.descriptor)) return true;
    return false;
  }

  MapMemory map_;
  Caller caller_;
  std::size_t current_ = 0;
  List<Block> listed_[kMaxModules];
  List<Range> gaps_;
  uint64_t stack_end_ = 0;
  bool blocked_ = false;  // a thread is inside
  uint64_t lock_ = 0;     // that it holds, if known
  char reason_[80] = {};
  std::size_t length_ = 0;
};

}  // namespace reachscan::heaps::iterated
