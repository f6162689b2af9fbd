// Whether threads of a stopped target are in the code of an injected recorder.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "helper/stop/freeze.hpp"
#include "helper/target/memory.hpp"
#include "recorder/injection.hpp"
#include "wire/inside_allocator.hpp"

namespace reachscan::helper {

// Made before the pause, so that the memory that it needs has been touched.
class ThreadSearch {
 public:
  ThreadSearch();

  // Returns a thread that is in it, will return to it, or may do so; null if there is none.
  const StoppedThread* find_inside(Freeze& freeze, const Memory& memory,
                                   const recorder::Injection& injection);

  // Returns a thread that is in this code, or was interrupted there by a signal whose handler has
  // not returned.
  const StoppedThread* find_in_code(Freeze& freeze, const Memory& memory,
                                    const abi::CodeRanges& code);

 private:
  std::vector<std::uint64_t> stacks_;
};

}  // namespace reachscan::helper
