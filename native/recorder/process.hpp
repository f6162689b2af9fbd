// The process that the recorder was loaded into, and the functions that it interposes.
#pragma once

#include "recorder/images.hpp"

// Functions that pass a call on without a mark must leave by a jump: detach would not see a thread
// that will return to them. The language does not guarantee jumps, so check_injected.cmake searches
// this section for calls.
#define PASSES_ON [[gnu::section("passes_on")]]

namespace reachscan::recorder {

// Prepares everything that hooks need, on first use: the loader and the constructors of other
// libraries allocate before those of the recorder run. `environment` is the one passed to them.
void prepare_process(char** environment = nullptr);

// Returns the function of this name that would be called without the recorder; 0 if there is none.
std::uint64_t next_function(const char* name);

// Like malloc(), without the quick way out for blocks that come before the next sample.
void* unsampled_malloc(std::size_t size);

// Look all of them up now.
void look_up_allocator();
void look_up_process_functions();

// Tells the waiting process that this one is about to end, and lets it scan: its report is complete
// before this returns. Does nothing in other processes.
void announce_end();

// Lets the waiting process attach to this one, where only one process may (Yama): must be called
// again after the program has named another one.
void permit_waiting_tracer();

// The signal that requests a report, 0 if none does; and its handler.
int report_signal();
void request_report(int);

// The next function after a hook, looked up on the first call.
template <typename Signature>
class Next;

template <typename Result, typename... Arguments>
class Next<Result(Arguments...)> {
 public:
  constexpr explicit Next(const char* name) : name_(name) {}

  bool exists() { return address() != 0; }

  Result (*target())(Arguments...) { return reinterpret_cast<Function>(address()); }

  Result operator()(Arguments... arguments) {
    std::uint64_t found = __atomic_load_n(&address_, __ATOMIC_RELAXED);
    if (found == 0) [[unlikely]] {
      if constexpr (kFitsRegisters) return call_first(arguments...);
      found = address();
    }
    return reinterpret_cast<Function>(found)(arguments...);
  }

 private:
  using Function = Result (*)(Arguments...);

  // Whether call_first(), which has one argument more, can be reached and left by jumps.
  static constexpr bool kFitsRegisters = sizeof...(Arguments) < 6;

  // A separate function, so that later calls need not save what the look-up would overwrite.
  [[gnu::noinline, gnu::cold]] Result call_first(Arguments... arguments) {
    return reinterpret_cast<Function>(address())(arguments...);
  }

  std::uint64_t address() {
    std::uint64_t found = __atomic_load_n(&address_, __ATOMIC_RELAXED);
    if (found != 0) return found;
    prepare_process();
    found = next_function(name_);
    __atomic_store_n(&address_, found, __ATOMIC_RELAXED);
    return found;
  }

  const char* name_;
  std::uint64_t address_ = 0;
};

// The same for functions that are called very often: it is not even asked whether they have been
// looked up. Until then, calls go to `kFirst`, which calls first().
template <typename Signature, Signature* kFirst>
class OftenCalled;

template <typename Result, typename... Arguments, Result (*kFirst)(Arguments...)>
class OftenCalled<Result(Arguments...), kFirst> {
 public:
  constexpr explicit OftenCalled(const char* name) : next_(name) {}

  void look_up() {
    if (next_.exists()) __atomic_store_n(&target_, next_.target(), __ATOMIC_RELAXED);
  }

  Result operator()(Arguments... arguments) {
    return __atomic_load_n(&target_, __ATOMIC_RELAXED)(arguments...);
  }

  Result first(Arguments... arguments) {
    look_up();
    return next_(arguments...);
  }

 private:
  Next<Result(Arguments...)> next_;
  Result (*target_)(Arguments...) = kFirst;
};

}  // namespace reachscan::recorder
