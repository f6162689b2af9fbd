// A program that is linked statically: no loader has filled in words that its calls go through, and
// what it calls is told by its file alone.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "helper/target/memory.hpp"
#include "recorder/injection.hpp"

namespace reachscan::helper {

struct StaticFunction {
  std::uint32_t hook;
  std::uint64_t address;
  std::uint64_t word;  // there
  std::vector<unsigned char> code;
};

struct StaticProgram {
  std::uint64_t bias = 0;
  recorder::MappedRange unwind_tables{};  // none: 0
  std::vector<StaticFunction> functions;  // those to be hooked, each once
};

// Nothing if a loader has loaded it. Throws Failure(kUnrecordable) if it is not known where it has
// its allocator.
std::optional<StaticProgram> find_static_program(pid_t pid, const Memory& memory);

}  // namespace reachscan::helper
