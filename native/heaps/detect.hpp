// Which allocators the process has: the one place that knows all walkers.
#pragma once

#include "heaps/glibc/walker.hpp"
#include "heaps/interposed.hpp"

namespace reachscan::heaps {

static_assert(Walker<glibc::Walker>);

// All that the process has allocated, whoever it got it from.
class Heap {
 public:
  Heap(const Space& space, const abi::Thread* threads, std::size_t thread_count, MapMemory map)
      : space_(space),
        map_(map),
        threads_{threads, thread_count, {map, libc::kMaxEndedThreads}},
        glibc_(space, threads_, map) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  const libc::Threads& threads() const { return threads_; }

  bool is_present() const {
    return !every([](const auto&) { return false; });
  }

  // A module that defines malloc and is no allocator known here; 0 if there is none. Its blocks are
  // enumerated by nobody, so nothing can be said about the process.
  uint64_t unknown_allocator() const {
    return find_interposed_malloc(space_, [this](uint32_t file) {
      return !every([file](const auto& walker) { return !walker.is_in(file); });
    });
  }

  bool quiet(abi::QuiesceHint& hint) {
    return every([&hint](auto& walker) { return walker.quiet(hint); });
  }

  Verdict enumerate(BlockMap& blocks, OnThreads on_threads) {
    if (!libc::find_ended_threads(space_, threads_, map_)) return {Verdict::kNoMemory, nullptr, 0};
    Verdict verdict;
    every([&](auto& walker) {
      verdict = walker.enumerate(blocks, on_threads);
      return verdict.fine();
    });
    return verdict;
  }

  bool interrupted(abi::QuiesceHint& hint) const {
    return !every([&hint](const auto& walker) { return !walker.interrupted(hint); });
  }

  Totals totals() const {
    Totals all;
    each([&all](const auto& walker) { all.add(walker.totals); });
    return all;
  }

  std::size_t arena_count() const {
    std::size_t count = 0;
    each([&count](const auto& walker) { count += walker.arena_count(); });
    return count;
  }

  // The first allocator's; "none" if there is none.
  void write_name(char (&name)[kNameLength]) const {
    __builtin_strcpy(name, "none");
    every([&name](const auto& walker) {
      walker.write_name(name);
      return false;
    });
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

 private:
  // Calls test(walker) for the allocators in the process, one by one, as long as it says true.
  // Returns whether it always did.
  template <typename Test>
  bool every(Test test) {
    return passes(glibc_, test);
  }
  template <typename Test>
  bool every(Test test) const {
    return passes(glibc_, test);
  }

  template <typename W, typename Test>
  static bool passes(W& walker, Test& test) {
    return !walker.is_present() || test(walker);
  }

  template <typename Visit>
  void each(Visit visit) const {
    every([&visit](const auto& walker) {
      visit(walker);
      return true;
    });
  }

  const Space& space_;
  MapMemory map_;
  libc::Threads threads_;
  glibc::Walker glibc_;
};

}  // namespace reachscan::heaps
