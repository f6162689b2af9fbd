// The process that the recorder was loaded into, and the functions that it stands in front of.
#pragma once

#include "recorder/images.hpp"

namespace reachscan::recorder {

// Has everything ready that hooks need, on first use: the loader and the constructors of other
// libraries allocate before those of the recorder run. `environment` is what these are passed.
void prepare_process(char** environment = nullptr);

// The function of this name that would be called, were there no recorder; 0 if there is none.
std::uint64_t next_function(const char* name);

// Look up all of them now.
void look_up_allocator();
void look_up_process_functions();

// Tells the process that waits for it that this one is about to end, and lets it look: its report
// is made before this returns. Does nothing in other processes.
void announce_end();

// Lets the process that waits attach to this one, where only one may (Yama): to be called again
// when the program has named another, and is done with it.
void permit_waiting_tracer();

// The signal that asks for a report, 0 if none does; and its handler.
int report_signal();
void ask_for_report(int);

// A function behind a hook, looked up when it is first called.
template <typename Signature>
class Next;

template <typename Result, typename... Arguments>
class Next<Result(Arguments...)> {
 public:
  constexpr explicit Next(const char* name) : name_(name) {}

  bool exists() { return address() != 0; }

  Result operator()(Arguments... arguments) {
    return reinterpret_cast<Result (*)(Arguments...)>(address())(arguments...);
  }

 private:
  std::uint64_t address() {
    std::uint64_t found = __atomic_load_n(&address_, __ATOMIC_RELAXED);
    if (found != 0) [[likely]]
      return found;
    prepare_process();
    found = next_function(name_);
    __atomic_store_n(&address_, found, __ATOMIC_RELAXED);
    return found;
  }

  const char* name_;
  std::uint64_t address_ = 0;
};

}  // namespace reachscan::recorder
