// A function of the target that is to be hooked, with its machine code.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <vector>

#include "helper/target/memory.hpp"
#include "recorder/injection.hpp"

namespace reachscan::helper {

struct TargetFunction {
  static constexpr std::uint64_t kMaxCodeBytes = 1 << 16;

  TargetFunction(std::uint32_t its_hook, std::uint64_t at, std::uint64_t bytes,
                 const Memory& memory)
      : hook(its_hook), address(at), code(std::min(bytes, kMaxCodeBytes)) {
    if (!memory.try_read(address, &word, sizeof word) ||
        !memory.try_read(address, code.data(), code.size()))
      code.clear();
  }

  std::uint32_t hook;
  std::uint64_t address;
  std::uint64_t word = 0;           // the one at `address`
  std::vector<unsigned char> code;  // empty if it cannot be read
};

// Returns the hook of the function of this name, kHookedCount if it has none.
inline std::uint32_t hook_named(const char* name) {
  auto named = [&](const recorder::HookedFunction& function) {
    return std::strcmp(function.name, name) == 0;
  };
  const auto* found = std::find_if(std::begin(recorder::kHookedFunctions),
                                   std::end(recorder::kHookedFunctions), named);
  return static_cast<std::uint32_t>(found - std::begin(recorder::kHookedFunctions));
}

}  // namespace reachscan::helper
