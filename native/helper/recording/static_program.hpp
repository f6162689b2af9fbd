// A statically linked program: no loader has filled in words that its calls go through, and only
// its file shows what it calls.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "helper/recording/target_function.hpp"
#include "recorder/injection.hpp"

namespace reachscan::helper {

struct StaticProgram {
  std::uint64_t bias = 0;
  recorder::MappedRange unwind_tables{};  // none: 0
  std::vector<TargetFunction> functions;  // to be hooked
};

// Returns nothing if a loader has loaded the program. Throws Failure(kUnrecordable) if its
// allocator cannot be found.
std::optional<StaticProgram> find_static_program(pid_t pid, const Memory& memory);

}  // namespace reachscan::helper
