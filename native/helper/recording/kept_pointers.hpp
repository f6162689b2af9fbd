// Whether a program has kept the address of one of the recorder's stubs. Words that the loader
// fills in with the address of a function are for calls, but a program may have copied one while it
// was hooked: into an object, onto a stack, into a list of functions to be called at its end.
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

class KeptPointers {
 public:
  // Before the pause.
  KeptPointers(pid_t pid, const TrampolineSite& site);
  ~KeptPointers();
  KeptPointers(const KeptPointers&) = delete;
  KeptPointers& operator=(const KeptPointers&) = delete;

  // While the target is stopped, and no word is hooked any more: from now on, nothing but a copy
  // that exists already can be copied.
  void capture(Freeze& freeze, const Memory& memory);

  // When it runs again. True if there is a copy, or may be one where nobody can look.
  bool exist(const recorder::Injection& injection);

 private:
  struct Sought {
    recorder::MappedRange stubs;
    std::vector<std::uint64_t> secrets;  // of C libraries, which hide pointers with them

    bool is_met(std::uint64_t word) const;
  };

  bool are_in(const Sought& sought, const MapEntry& entry) const;
  bool are_in(const Sought& sought, std::uint64_t start, std::uint64_t end) const;

  pid_t pid_;
  TrampolineSite site_;
  MappedFiles files_;
  DontforkMemory dontfork_;
  Descriptors descriptors_;
  RegisterWords words_;
  std::vector<std::uint64_t> secrets_;
  std::optional<pid_t> made_;
  std::optional<Clone> clone_;
};

}  // namespace reachscan::helper
