// Whether a program has kept the address of one of the recorder's stubs. Words that the loader
// fills in with function addresses are for calls, but a program may have copied one while it was
// hooked: into an object, onto a stack, or into a list of functions to call at exit.
#pragma once

#include <optional>
#include <vector>

#include "helper/capture/clone.hpp"
#include "helper/capture/dontfork_memory.hpp"
#include "helper/capture/trampoline.hpp"
#include "helper/stop/freeze.hpp"
#include "helper/target/mapped_files.hpp"
#include "recorder/injection.hpp"

namespace reachscan::helper {

class StubPointers {
 public:
  // Called before the pause.
  StubPointers(pid_t pid, const TrampolineSite& site);
  ~StubPointers();
  StubPointers(const StubPointers&) = delete;
  StubPointers& operator=(const StubPointers&) = delete;

  // Called while the target is stopped and nothing is hooked any more: from now on, only existing
  // copies can be copied.
  void capture(Freeze& freeze, const Memory& memory);

  // Called when it runs again. Returns true if there is a copy, or may be one where the search is
  // impossible.
  bool exist(const recorder::Injection& injection);

 private:
  struct SearchTarget {
    recorder::MappedRange stubs;
    std::vector<std::uint64_t> secrets;  // with which C libraries mangle pointers

    bool is_match(std::uint64_t word) const;
  };

  bool are_in(const SearchTarget& sought, const MapEntry& entry) const;
  bool are_in(const SearchTarget& sought, std::uint64_t start, std::uint64_t end) const;

  pid_t pid_;
  TrampolineSite site_;
  std::uint64_t random_words_;  // from the kernel: the second one is glibc's secret
  MappedFiles files_;
  DontforkMemory dontfork_;
  Descriptors descriptors_;
  RegisterWords words_;
  std::vector<std::uint64_t> secrets_;
  std::optional<pid_t> made_;
  std::optional<Clone> clone_;
};

}  // namespace reachscan::helper
