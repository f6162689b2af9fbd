// The allocators in the process: the one place that knows all walkers.
#pragma once

#include "heaps/glibc/walker.hpp"
#include "heaps/interposed.hpp"
#include "heaps/iterated/walker.hpp"
#include "heaps/jemalloc/walker.hpp"
#include "heaps/mimalloc/walker.hpp"
#include "heaps/musl/walker.hpp"
#include "heaps/no_heap.hpp"
#include "heaps/pools/walker.hpp"
#include "heaps/pymalloc/walker.hpp"
#include "heaps/scudo/walker.hpp"
#include "heaps/tcmalloc/walker.hpp"

namespace reachscan::heaps {

static_assert(Walker<glibc::Walker>);
static_assert(Walker<iterated::Walker>);
static_assert(Walker<jemalloc::Walker>);
static_assert(Walker<mimalloc::Walker>);
static_assert(Walker<musl::Walker>);
static_assert(Walker<pools::Walker>);
static_assert(Walker<pymalloc::Walker>);
static_assert(Walker<scudo::Walker>);
static_assert(Walker<tcmalloc::Walker>);

// Everything that the process has allocated, from whichever allocator.
class Heap {
 public:
  static constexpr std::size_t kWalkers = 9;

  // `left_out` has a bit for each heap to be treated as ordinary memory of the program. `python`:
  // whether to search for Python's own allocator. `annotations`: what the program declares about
  // its memory; null if there is nothing. `caller`: whether functions of the target can be called.
  Heap(const Space& space, const abi::Thread* threads, std::size_t thread_count, MapMemory map,
       uint32_t left_out = 0, bool python = false, const library::Header* annotations = nullptr,
       Caller caller = {})
      : space_(space),
        map_(map),
        left_out_(left_out),
        threads_{threads, thread_count, {map, libc::kMaxExitedThreads}},
        glibc_(space, threads_, map),
        jemalloc_(space, threads_, map),
        mimalloc_(space, threads_, map),
        musl_(space, threads_, map),
        scudo_(space, threads_, map),
        tcmalloc_(space, threads_, map),
        iterated_(space, threads_, map, caller),
        pymalloc_(space, threads_, map, python),
        pools_(space, threads_, map, annotations) {
    leave_to_others(iterated_);
  }
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  const libc::Threads& threads() const { return threads_; }

  bool is_present() const {
    return !every([](const auto&, uint32_t) { return false; });
  }

  // Returns whether there are blocks that this form of the sweeper cannot represent. If so, nothing
  // else may be called.
  bool needs_fine() const {
    return !has_room_for(glibc_) || !has_room_for(jemalloc_) || !has_room_for(mimalloc_) ||
           !has_room_for(musl_) || !has_room_for(scudo_) || !has_room_for(tcmalloc_) ||
           !has_room_for(iterated_) || !has_room_for(pymalloc_) || !has_room_for(pools_);
  }

  // Returns whether there are blocks in pages of modules.
  bool uses_modules() const { return musl_.is_present() || pools_.is_present(); }

  // Returns a module that defines malloc but is not a known allocator; 0 if there is none. No
  // walker enumerates its blocks. The malloc in the file `forwarding`, if not 0, calls another one.
  uint64_t unknown_allocator(uint32_t forwarding) const {
    return find_interposed_malloc(space_, [this, forwarding](uint32_t file) {
      return (forwarding != 0 && file == forwarding) ||
             !every([file](const auto& walker, uint32_t) { return !walker.is_in(file); });
    });
  }

  // Returns whether a thread is inside that module, and where that is. Of a program, any code may
  // be its allocator's.
  bool is_inside(uint64_t module, abi::QuiesceHint& hint) const {
    DynamicSection section;
    if (!read_dynamic_section(space_, module, section) || section.of_executable) return false;
    hint.optional = 1;
    describe_library(space_, space_.find(module)->file, hint);
    return !is_quiet_named(space_, threads_, hint);
  }

  // Returns a clause about that module for people.
  const char* why_unknown(uint64_t module) const {
    if (lists_blocks(module))
      return "malloc is provided by a module that is not understood; its malloc_iterate() can be "
             "called only in a clone";
    return is_scudo(space_, module) ? "malloc is provided by a form of Scudo that is not understood"
                                    : "malloc is provided by a module that is not understood";
  }

  // Returns whether an allocator that was left out, as a bit, lists its blocks instead.
  bool is_listed(uint32_t left_out) const {
    bool listed = false;
    for (const abi::Mapping& m : space_)
      listed = listed || (m.file != 0 && iterated_.is_in(m.file) && is_walked(m.file, left_out));
    return listed;
  }

  // Returns whether that module could list its blocks, if it were called.
  bool lists_blocks(uint64_t module) const {
    iterated::Interface found;
    return iterated::read_interface(space_, *space_.find(module), found);
  }

  // Whether an allocator may tell where it allocated blocks: see iterated::Walker.
  bool keeps_backtraces() const { return iterated_.keeps_backtraces(); }
  Verdict backtraces(const List<uint64_t>& blocks, NoteBacktrace note, void* context) {
    return iterated_.backtraces(blocks, note, context);
  }

  bool quiet(abi::QuiesceHint& hint) {
    bool all = true;
    each([&](auto& walker) { all = walker.quiet(hint) && all; });
    // One may become busy while others are being drained.
    if (!all) {
      hint.text.count = hint.callees.count = hint.unsettled.count = 0;
      each([&hint](const auto& walker) { walker.describe(hint); });
    }
    return all;
  }

  Verdict enumerate(BlockMap& blocks, OnThreads on_threads) {
    if (!libc::find_exited_threads(space_, threads_, map_)) return {Verdict::kNoMemory, nullptr, 0};
    Verdict verdict;
    uint32_t arenas = 0;
    std::size_t* regions = regions_;
    every([&](auto& walker, uint32_t number) {
      std::size_t before = blocks.regions.size();
      first_arena_[number] = arenas;
      verdict = walker.enumerate(blocks, on_threads, arenas);
      *regions++ = blocks.regions.size() - before;
      arenas += static_cast<uint32_t>(walker.arena_count());
      if (verdict.fine()) return true;
      failed_ = number;
      walker.write_name(failed_name_);
      return false;
    });
    subtract_divided(pools_);
    return verdict;
  }

  // After kInvalid: which heap that is, as a bit for the constructor.
  uint32_t failed() const { return 1u << failed_; }
  const char* failed_name() const { return failed_name_; }
  // Returns whether it is one that was requested.
  bool failed_wanted() const { return failed_ == kPymalloc; }

  bool interrupted(abi::QuiesceHint& hint) const {
    return !every([&hint](const auto& walker, uint32_t) { return !walker.interrupted(hint); });
  }

  Totals totals() const {
    Totals all;
    each([&all](const auto& walker) { all.add(walker.totals); });
    return all;
  }

  // Calls visit(walker, number of regions that it has claimed). Valid after enumerate().
  template <typename Visit>
  void each_found(Visit visit) const {
    const std::size_t* regions = regions_;
    each([&](const auto& walker) { visit(walker, *regions++); });
  }

  template <typename Visit>
  void each_warning(Visit visit) const {
    each([&visit](const auto& walker) {
      Warning warning = walker.warning();
      if (warning.code != nullptr) visit(warning);
    });
  }

  template <typename Visit>
  void each_variable(Visit visit) const {
    each([&visit](const auto& walker) { walker.each_variable(visit); });
  }

  // Calls visit(range) for memory that is an allocator's or the program's.
  template <typename Visit>
  void each_unclear(Visit visit) const {
    each([&visit](const auto& walker) {
      if constexpr (requires { walker.each_unclear(visit); }) walker.each_unclear(visit);
    });
  }

 private:
  // Programs without pools have nothing to subtract.
  template <typename Pools>
  void subtract_divided(const Pools& pools) {
    if constexpr (requires { pools.divided; })
      for (const auto& block : pools.divided) subtract(block);
  }

  // Where the structure is understood, there is no need to ask the allocator.
  template <typename Iterated>
  void leave_to_others(Iterated& iterated) {
    if constexpr (requires { iterated.disown([](uint32_t) { return true; }); })
      iterated.disown([this](uint32_t file) { return is_walked(file, ~left_out_); });
  }

  // Returns whether the file is part of an allocator that one of `walkers` recognises, with a bit
  // for each.
  bool is_walked(uint32_t file, uint32_t walkers) const {
    auto is_part = [&](const auto& walker, uint32_t number) {
      return (walkers >> number & 1) != 0 && walker.is_in(file);
    };
    return is_part(glibc_, 0) || is_part(jemalloc_, 1) || is_part(mimalloc_, 2) ||
           is_part(musl_, 3) || is_part(scudo_, 4) || is_part(tcmalloc_, 5);
  }

  static constexpr uint32_t kPymalloc = 7;

  // Calls test(walker, its number) for the allocators in the process, in order, until it returns
  // false. Returns whether it never did.
  template <typename Test>
  bool every(Test test) {
    return passes(glibc_, 0, test) && passes(jemalloc_, 1, test) && passes(mimalloc_, 2, test) &&
           passes(musl_, 3, test) && passes(scudo_, 4, test) && passes(tcmalloc_, 5, test) &&
           passes(iterated_, 6, test) && passes(pymalloc_, kPymalloc, test) &&
           passes(pools_, 8, test);
  }
  template <typename Test>
  bool every(Test test) const {
    return passes(glibc_, 0, test) && passes(jemalloc_, 1, test) && passes(mimalloc_, 2, test) &&
           passes(musl_, 3, test) && passes(scudo_, 4, test) && passes(tcmalloc_, 5, test) &&
           passes(iterated_, 6, test) && passes(pymalloc_, kPymalloc, test) &&
           passes(pools_, 8, test);
  }

  template <typename W>
  static bool has_room_for(const W& walker) {
    return kFine || !W::kNeedsFine || !walker.is_present();
  }

  template <typename W, typename Test>
  bool passes(W& walker, uint32_t number, Test& test) const {
    if ((left_out_ >> number & 1) != 0) return true;
    if constexpr (kFine || !W::kNeedsFine) return !walker.is_present() || test(walker, number);
    return true;
  }

  // Subtracts it from the totals of the heap that allocated it.
  void subtract(const pools::Divided& block) {
    Totals* owner = nullptr;
    every([&](auto& walker, uint32_t number) {
      if (first_arena_[number] > block.arena) return false;
      owner = &walker.totals;
      return true;
    });
    owner->bytes -= block.bytes;
    owner->blocks -= block.is_whole;
  }

  template <typename Visit>
  void each(Visit visit) {
    every([&visit](auto& walker, uint32_t) {
      visit(walker);
      return true;
    });
  }
  template <typename Visit>
  void each(Visit visit) const {
    every([&visit](const auto& walker, uint32_t) {
      visit(walker);
      return true;
    });
  }

  const Space& space_;
  MapMemory map_;
  uint32_t left_out_;
  libc::Threads threads_;
  IfKnown<glibc::Walker> glibc_;
  IfKnown<jemalloc::Walker> jemalloc_;
  IfKnown<mimalloc::Walker> mimalloc_;
  IfKnown<musl::Walker> musl_;
  IfKnown<scudo::Walker> scudo_;
  IfKnown<tcmalloc::Walker> tcmalloc_;
  IfKnown<iterated::Walker> iterated_;
  IfKnown<pymalloc::Walker> pymalloc_;  // after those that allocate its tables
  IfKnown<pools::Walker> pools_;        // after those whose blocks they may be in
  uint32_t first_arena_[kWalkers] = {};
  std::size_t regions_[kWalkers] = {};  // of those that are present
  uint32_t failed_ = 0;
  char failed_name_[kNameLength] = {};
};

}  // namespace reachscan::heaps
